#include "cli/batch_run.h"

#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace berth::cli {
namespace {

Json RefusalJson(const Refusal& refusal) {
  Json json = {{"reason", RefusalReasonName(refusal.reason)}, {"message", refusal.message}};
  if (!refusal.field.empty()) json["field"] = refusal.field;
  if (!refusal.limit_name.empty()) {
    json["limit_name"] = refusal.limit_name;
    json["limit"] = refusal.limit;
    json["asked"] = refusal.asked;
  }
  return json;
}

}  // namespace

std::string RemainingLines::RequestHash(const std::string& line) const {
  Fingerprint fingerprint = options_;
  fingerprint.Add(line);
  return fingerprint.Hex();
}

absl::StatusOr<bool> RemainingLines::Contains(const BatchInput::Line& line) const {
  switch (output_->Find(line.index, RequestHash(line.text))) {
    case BatchOutput::Found::kNothing:
      return true;
    case BatchOutput::Found::kAnswer:
      return false;
    case BatchOutput::Found::kOtherAnswer:
      break;
  }
  return OtherRequest(line.index);
}

absl::StatusOr<std::int64_t> RemainingLines::CountLines(BatchInput* input) const {
  std::int64_t lines = 0;
  std::int64_t last_index = -1;
  for (;;) {
    const absl::StatusOr<std::optional<BatchInput::Line>> line = input->Next();
    if (!line.ok()) return line.status();
    if (!line->has_value()) break;
    const absl::StatusOr<bool> remains = Contains(**line);
    if (!remains.ok()) return remains.status();
    last_index = (*line)->index;
    ++lines;
  }
  if (last_index < output_->last_index()) return OtherRequest(output_->last_index());
  input->Rewind();
  return lines;
}

absl::Status RemainingLines::OtherRequest(std::int64_t index) const {
  return absl::FailedPreconditionError(output_name_ + " has an answer for line " + std::to_string(index + 1) + " of " +
                                       input_name_ +
                                       ", but not for this line with this model and these flags: give another file "
                                       "with -o, or start over with --overwrite");
}

absl::Status BatchRun::Go(std::int32_t workers) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(workers));
  for (std::int32_t i = 0; i < workers; ++i) threads.emplace_back([this] { Work(); });
  threads.clear();  // joins
  return failure_;
}

void BatchRun::Work() {
  while (std::optional<BatchInput::Line> line = NextLine()) {
    const std::optional<Json> answer = AnswerTo(*line);
    if (!answer) return;
    const absl::Status status = parts_.output->Append(*answer);
    if (parts_.output->closed()) {
      RequestStop();
    } else if (!status.ok()) {
      Fail(status);
    }
  }
}

std::optional<BatchInput::Line> BatchRun::NextLine() {
  const std::lock_guard lock(mutex_);
  while (!stop_.stop_requested() && !input_ended_) {
    absl::StatusOr<std::optional<BatchInput::Line>> line = parts_.input->Next();
    if (line.ok() && !line->has_value()) {
      input_ended_ = true;
      break;
    }
    const absl::StatusOr<bool> remains = line.ok() ? parts_.remaining->Contains(**line) : line.status();
    if (!remains.ok()) {
      FailLocked(remains.status());
    } else if (*remains) {
      return *std::move(line);
    }
  }
  return std::nullopt;
}

absl::StatusOr<TokenizedRequest> BatchRun::RequestOf(const BatchInput::Line& line, Json* id) const {
  if (!line.fault.ok()) return line.fault;
  absl::StatusOr<GenerateSpec> spec = parts_.parser->Parse(line.text, id);
  if (!spec.ok()) return spec.status();
  return TokenizeRequest(*parts_.runtime->tokenizer, *std::move(spec));
}

// The line to write, or nothing where the run was stopped before there was one.
std::optional<Json> BatchRun::AnswerTo(const BatchInput::Line& line) {
  Json json = {{"index", line.index}};
  Json id;
  absl::StatusOr<TokenizedRequest> request = RequestOf(line, &id);
  if (!id.is_null()) json["id"] = std::move(id);
  if (request.ok()) return Run(std::move(json), line, *std::move(request));
  Refusal refusal;
  refusal.message = std::string(request.status().message());
  return ErrorJson(std::move(json), refusal);
}

std::optional<Json> BatchRun::Run(Json json, const BatchInput::Line& line, TokenizedRequest request) {
  request.spec.request_id = "batch-" + std::to_string(line.index);
  request.spec.arrival = parts_.runtime->clock.Now();
  const OutputSpec wanted = request.spec.output;
  const std::uint64_t seed = request.spec.sampling.seed;
  std::vector<TokenId> prompt = wanted.return_token_ids ? request.prompt : std::vector<TokenId>();
  const auto count = [this](const TokenDelta& delta) { parts_.progress->AddTokens(std::ssize(delta.token_ids)); };
  const std::variant<Answer, Refusal> result =
      RunInEngine(*parts_.runtime->engine, std::move(request), count, stop_.get_token());
  const auto* answer = std::get_if<Answer>(&result);
  const auto* refusal = std::get_if<Refusal>(&result);
  if (answer != nullptr && answer->failure) refusal = &*answer->failure;
  if (refusal != nullptr) {
    if (stop_.stop_requested()) return std::nullopt;
    return ErrorJson(std::move(json), *refusal);
  }
  parts_.progress->AddAnswered(answer->usage.prompt_tokens);
  json["request_hash"] = parts_.remaining->RequestHash(line.text);
  if (wanted.return_token_ids) json["prompt_ids"] = std::move(prompt);
  AddAnswer(*answer, wanted, &json);
  json["seed"] = seed;
  json["usage"] = UsageJson(answer->usage);
  json["timing"] = TimingJson(answer->usage);
  return json;
}

void BatchRun::AddAnswer(const Answer& answer, const OutputSpec& wanted, Json* json) const {
  const auto piece = [this](TokenId id) { return TokenText(*parts_.runtime->tokenizer, id); };
  Json choices = Json::array();
  for (const ChoiceAnswer& choice : answer.choices) {
    Json one = {{"index", choices.size()}, {"text", choice.text}};
    if (wanted.return_token_ids) one["output_ids"] = choice.output_ids;
    one["finish_reason"] = answer.FinishName(choice);
    one["stop_match"] = StopMatchJson(choice);
    if (wanted.logprobs != kNoLogprobs) one["logprobs"] = LogprobsJson(choice.logprobs, piece);
    choices.push_back(std::move(one));
  }
  (*json)["choices"] = std::move(choices);
  if (wanted.prompt_logprobs != kNoLogprobs) {
    (*json)["prompt_logprobs"] = LogprobsJson(answer.prompt_logprobs, piece);
  }
}

Json BatchRun::ErrorJson(Json json, const Refusal& refusal) {
  parts_.progress->AddFailed();
  json["error"] = RefusalJson(refusal);
  return json;
}

void BatchRun::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  FailLocked(status);
}

void BatchRun::FailLocked(const absl::Status& status) {
  failure_.Update(status);
  RequestStop();
}

}  // namespace berth::cli
