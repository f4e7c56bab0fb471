#include "fakes/fake_backend.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth::test {

TokenId HashedLetter(std::span<const TokenId> prompt, std::span<const TokenId> output) {
  std::uint64_t hash = 1469598103934665603ULL + output.size();
  for (const TokenId id : prompt) hash = (hash ^ static_cast<std::uint64_t>(id)) * 1099511628211ULL;
  hash = (hash ^ output.size()) * 1099511628211ULL;
  return 'a' + static_cast<TokenId>((hash >> 17) % 26);
}

NextToken Script(std::vector<TokenId> script, TokenId then) {
  return [script = std::move(script), then](std::span<const TokenId>, std::span<const TokenId> output) {
    return output.size() < script.size() ? script[output.size()] : then;
  };
}

NextToken Script(std::string script, TokenId then) {
  std::vector<TokenId> ids;
  for (const char c : script) ids.push_back(static_cast<unsigned char>(c));
  return Script(std::move(ids), then);
}

float FakeLogprob(TokenId token) { return -0.5F - static_cast<float>(token) / 1024.0F; }

FakeBackend::FakeBackend(BackendInfo info, NextToken next_token, FakeClock* clock, Duration step_time)
    : info_(std::move(info)),
      next_token_(std::move(next_token)),
      clock_(clock),
      step_time_(step_time),
      memory_(static_cast<std::size_t>(info_.pool.num_blocks) * static_cast<std::size_t>(info_.pool.block_tokens),
              kNoToken),
      host_memory_(static_cast<std::size_t>(info_.pool.host_blocks) * static_cast<std::size_t>(info_.pool.block_tokens),
                   kNoToken) {}

absl::Status FakeBackend::Submit(const StepPlan& plan) {
  BERTH_CHECK_MSG(std::ssize(in_flight_) < info_.max_steps_in_flight, "too many steps in flight");
  CheckPlan(plan);
  bool done = true;
  {
    const std::lock_guard lock(mutex_);
    NoteSeen(plan);
    const std::int64_t number = submitted_++;
    if (failing_submits_.contains(number)) return absl::InternalError("submit was told to fail");
    in_flight_.push_back({&plan, number});
    if (gate_closed_ && permits_ == 0) {
      ++at_gate_;
      done = false;
      changed_.notify_all();
    } else {
      if (gate_closed_) --permits_;
      ++done_;
    }
  }
  if (done && notify_) notify_();
  return absl::OkStatus();
}

// A step runs when it is awaited: as late as it may.
absl::Status FakeBackend::Await(StepResult* result) {
  BERTH_CHECK_MSG(!in_flight_.empty(), "nothing was submitted");
  const Submitted step = in_flight_.front();
  in_flight_.pop_front();
  const bool doomed = doomed_ > 0;
  if (doomed) --doomed_;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ > 0; });
    --done_;
    if (clock_ != nullptr) clock_->Advance(step_time_);
    if (doomed) return absl::InternalError("the step before failed");
    if (broken_ || failing_awaits_.contains(step.number)) {
      doomed_ = in_flight_.size();
      return absl::InternalError("await was told to fail");
    }
  }
  const StepPlan& plan = *step.plan;
  Copy(plan);
  for (const StepRow& row : plan.rows) Store(plan, row);
  result->step = plan.step;
  result->logits.clear();
  result->top.clear();
  result->busy = step_time_;
  for (const LogitRow& row : plan.logit_rows) result->logits.push_back(Answer(plan, row, result));
  answers_ = result->logits;
  return absl::OkStatus();
}

TokenId FakeBackend::Token(const StepPlan& plan, std::int32_t index) const {
  const TokenId id = plan.token_ids[static_cast<std::size_t>(index)];
  if (id != kNoToken) return id;
  const auto carried = std::ranges::find(plan.carried_tokens, index, &CarriedToken::token_index);
  return answers_[static_cast<std::size_t>(carried->logit_row)].token;
}

void FakeBackend::NoteSeen(const StepPlan& plan) {
  swapped_blocks_ += std::ssize(plan.swap_out);
  for (const StepRow& row : plan.rows) {
    SeenRow seen{submitted_, row.sequence, row.first_position, row.num_tokens, row.num_blocks, {}};
    for (const LogitRow& logit : plan.logit_rows) {
      if (logit.target != kNoToken || logit.token_index != row.token_begin + row.num_tokens - 1) continue;
      seen.banned.assign(logit.sampling.banned.begin(), logit.sampling.banned.end());
    }
    seen_.push_back(std::move(seen));
  }
}

void FakeBackend::CheckPlan(const StepPlan& plan) {
  const auto num_tokens = static_cast<std::int32_t>(plan.token_ids.size());
  const auto num_block_ids = static_cast<std::int32_t>(plan.block_ids.size());
  BERTH_CHECK(num_tokens <= info_.max_step_tokens);
  BERTH_CHECK(!plan.empty());
  for (const TokenId id : plan.token_ids) BERTH_CHECK(id == kNoToken || (id >= 0 && id < info_.vocab_size));
  CheckCarried(plan);
  for (const BlockId id : plan.block_ids) BERTH_CHECK(id >= 0 && id < info_.pool.num_blocks);
  std::int32_t covered = 0;
  for (const StepRow& row : plan.rows) {
    BERTH_CHECK(row.token_begin == covered && row.num_tokens >= 1);
    covered += row.num_tokens;
    const std::int32_t end = row.first_position + row.num_tokens;
    BERTH_CHECK(end <= info_.max_context_tokens);
    BERTH_CHECK(row.block_begin >= 0 && row.block_begin + row.num_blocks <= num_block_ids);
    BERTH_CHECK(row.num_blocks >= CeilDiv(end, info_.pool.block_tokens));
    const std::span table =
        std::span(plan.block_ids)
            .subspan(static_cast<std::size_t>(row.block_begin), static_cast<std::size_t>(row.num_blocks));
    BERTH_CHECK_MSG(std::set<BlockId>(table.begin(), table.end()).size() == table.size(), "a block twice in a table");
  }
  BERTH_CHECK(covered == num_tokens);
  CheckLogits(plan);
}

// Every token that is not known is one that the step just before, still in flight, draws.
void FakeBackend::CheckCarried(const StepPlan& plan) const {
  BERTH_CHECK(std::ranges::count(plan.token_ids, kNoToken) == std::ssize(plan.carried_tokens));
  std::int32_t last_index = -1;
  for (const CarriedToken& carried : plan.carried_tokens) {
    BERTH_CHECK(carried.token_index > last_index && carried.token_index < std::ssize(plan.token_ids));
    BERTH_CHECK(plan.token_ids[static_cast<std::size_t>(carried.token_index)] == kNoToken);
    last_index = carried.token_index;
    BERTH_CHECK_MSG(!in_flight_.empty(), "a token is carried from a step that is not in flight");
    const std::vector<LogitRow>& before = in_flight_.back().plan->logit_rows;
    BERTH_CHECK(carried.logit_row >= 0 && carried.logit_row < std::ssize(before));
    BERTH_CHECK(before[static_cast<std::size_t>(carried.logit_row)].target == kNoToken);
  }
}

void FakeBackend::CheckLogits(const StepPlan& plan) const {
  std::int32_t last_index = -1;
  for (const LogitRow& row : plan.logit_rows) {
    BERTH_CHECK(row.token_index >= last_index && row.token_index < std::ssize(plan.token_ids));
    last_index = row.token_index;
    if (row.target == kNoToken) {
      CheckSampling(row);
    } else {
      BERTH_CHECK(row.target >= 0 && row.target < info_.vocab_size && row.top_logprobs >= 0);
    }
  }
}

void FakeBackend::CheckSampling(const LogitRow& row) const {
  const SamplingInput& sampling = row.sampling;
  BERTH_CHECK(sampling.spec != nullptr);
  BERTH_CHECK(sampling.prompt_tokens >= 1 &&
              static_cast<std::size_t>(sampling.prompt_tokens) <= sampling.history.size());
  BERTH_CHECK(std::ranges::is_sorted(sampling.banned));
  for (const TokenId id : sampling.banned) BERTH_CHECK(id >= 0 && id < info_.vocab_size);
}

std::size_t FakeBackend::Slot(const StepPlan& plan, const StepRow& row, std::int32_t position) const {
  const auto block = plan.block_ids[static_cast<std::size_t>(row.block_begin + position / info_.pool.block_tokens)];
  return static_cast<std::size_t>(block) * static_cast<std::size_t>(info_.pool.block_tokens) +
         static_cast<std::size_t>(position % info_.pool.block_tokens);
}

void FakeBackend::CopyBlock(const std::vector<TokenId>& from, BlockId from_block, std::vector<TokenId>* to,
                            BlockId to_block) const {
  const std::ptrdiff_t width = info_.pool.block_tokens;
  std::copy_n(from.begin() + from_block * width, width, to->begin() + to_block * width);
}

void FakeBackend::Copy(const StepPlan& plan) {
  for (const SwapCopy& copy : plan.swap_out) CopyBlock(memory_, copy.block, &host_memory_, copy.host_block);
  for (const SwapCopy& copy : plan.swap_in) CopyBlock(host_memory_, copy.host_block, &memory_, copy.block);
  for (const BlockCopy& copy : plan.block_copies) CopyBlock(memory_, copy.from, &memory_, copy.to);
}

void FakeBackend::Store(const StepPlan& plan, const StepRow& row) {
  for (std::int32_t i = 0; i < row.num_tokens; ++i) {
    memory_[Slot(plan, row, row.first_position + i)] = Token(plan, row.token_begin + i);
  }
}

std::vector<TokenId> FakeBackend::Read(const StepPlan& plan, const StepRow& row, std::int32_t tokens) const {
  std::vector<TokenId> read;
  for (std::int32_t position = 0; position < tokens; ++position) read.push_back(memory_[Slot(plan, row, position)]);
  return read;
}

LogitResult FakeBackend::Answer(const StepPlan& plan, const LogitRow& row, StepResult* result) const {
  LogitResult answer;
  answer.token = row.target;
  if (row.target == kNoToken) {
    const SamplingInput& sampling = row.sampling;
    const auto owner = std::ranges::find_if(plan.rows, [&](const StepRow& r) {
      return row.token_index >= r.token_begin && row.token_index < r.token_begin + r.num_tokens;
    });
    const std::int32_t tokens = owner->first_position + row.token_index - owner->token_begin + 1;
    std::vector<TokenId> history(sampling.history.begin(), sampling.history.end());
    const bool carried = plan.token_ids[static_cast<std::size_t>(row.token_index)] == kNoToken;
    if (carried) history.push_back(Token(plan, row.token_index));
    BERTH_CHECK_MSG(owner->sequence < 0 || Read(plan, *owner, tokens) == history,
                    "a table does not show its sequence's history");
    const auto prompt_tokens = static_cast<std::size_t>(sampling.prompt_tokens);
    const auto output = std::span<const TokenId>(history).subspan(prompt_tokens);
    answer.token = next_of_choice_ ? next_of_choice_(sampling.choice_index, output)
                                   : next_token_(sampling.history.first(prompt_tokens), output);
    while (std::ranges::binary_search(sampling.banned, answer.token)) {
      answer.token = (answer.token + 1) % info_.vocab_size;
    }
  }
  answer.logprob = FakeLogprob(answer.token);
  answer.top_begin = static_cast<std::int32_t>(result->top.size());
  answer.num_top = std::max(0, row.top_logprobs);
  for (TokenId id = 0; id < answer.num_top; ++id) result->top.push_back({id, FakeLogprob(id)});
  return answer;
}

void FakeBackend::CloseGate() {
  const std::lock_guard lock(mutex_);
  gate_closed_ = true;
}

void FakeBackend::WaitForStepAtGate(std::int64_t steps) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return at_gate_ >= steps; });
}

void FakeBackend::LetOneStepGo() {
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    done = at_gate_ > 0;
    if (done) {
      --at_gate_;
      ++done_;
    } else {
      ++permits_;
    }
    changed_.notify_all();
  }
  if (done && notify_) notify_();
}

void FakeBackend::OpenGate() {
  std::int64_t done = 0;
  {
    const std::lock_guard lock(mutex_);
    gate_closed_ = false;
    permits_ = 0;
    done = std::exchange(at_gate_, 0);
    done_ += done;
    changed_.notify_all();
  }
  for (; done > 0 && notify_; --done) notify_();
}

void FakeBackend::FailSubmit(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  failing_submits_.insert(step);
}

void FakeBackend::FailAwait(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  failing_awaits_.insert(step);
}

void FakeBackend::SetBroken(bool broken) {
  const std::lock_guard lock(mutex_);
  broken_ = broken;
}

std::vector<SeenRow> FakeBackend::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::int64_t FakeBackend::swapped_blocks() const {
  const std::lock_guard lock(mutex_);
  return swapped_blocks_;
}

std::int64_t FakeBackend::steps() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

}  // namespace berth::test
