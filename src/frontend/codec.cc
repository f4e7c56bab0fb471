#include "frontend/codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

// Returns the refusal out of the calling function, where there is one.
#define BERTH_RETURN_IF_REFUSED(expression)                            \
  do {                                                                 \
    if (std::optional<Refusal> refused = (expression)) return refused; \
  } while (false)

namespace berth {
namespace {

Refusal Invalid(const std::string& field, const std::string& fault) {
  Refusal refusal;
  refusal.reason = RefusalReason::kInvalidRequest;
  refusal.message = absl::StrCat(field, " ", fault);
  refusal.field = field;
  return refusal;
}

// A number's bounds as they are told to the caller.
template <typename T>
struct Bounds {
  T min;
  T max;
  bool above_min = false;  // min itself is out
};

template <typename T>
std::optional<Refusal> CheckBounds(const char* field, T value, const Bounds<T>& bounds) {
  // Written so that NaN fails.
  const bool low_enough = value <= bounds.max;
  const bool high_enough = bounds.above_min ? value > bounds.min : value >= bounds.min;
  if (low_enough && high_enough) return std::nullopt;
  return Invalid(field, absl::StrCat("is ", value, ": it must be ", bounds.above_min ? "above " : "at least ",
                                     bounds.min, " and at most ", bounds.max));
}

// For names and seeds, not for secrets. A random_device for each request would be most of what a refusal costs: it asks
// the processor what it can do, which traps on virtual machines.
std::uint64_t Random64() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return random();
}

// Longer than anyone waits, and far from overflowing nanoseconds.
constexpr std::int64_t kForeverSeconds = 1'000'000'000;

std::string_view NameAskedFor(std::string_view field, const CallHeaders& headers) {
  return field.empty() ? headers.service_class : field;
}

}  // namespace

ClassId ClassAskedFor(std::string_view field, const CallHeaders& headers, const Policy& policy) {
  const std::string_view name = NameAskedFor(field, headers);
  const auto matches = [&](const ClassPolicy& c) {
    if (c.removed) return false;
    if (!name.empty()) return c.name == name;
    return std::find(c.objectives.begin(), c.objectives.end(), headers.objective) != c.objectives.end();
  };
  const auto found = std::find_if(policy.classes.begin(), policy.classes.end(), matches);
  if (found != policy.classes.end()) return static_cast<ClassId>(found - policy.classes.begin());
  // An objective that no class names is a gateway's own affair.
  return name.empty() ? policy.default_class : kNoClass;
}

Codec::Codec(const RequestLimits& limits, std::string model_name, std::int32_t max_context_tokens,
             const Tokenizer* tokenizer)
    : limits_(limits),
      model_name_(std::move(model_name)),
      max_context_tokens_(max_context_tokens),
      tokenizer_(tokenizer) {}

std::string Codec::ResolveRequestId(const v1::GenerateRequest& request) const {
  if (!request.request_id().empty() && !CheckRequestId(request.request_id())) return request.request_id();
  return absl::StrCat("berth-", absl::Hex(Random64(), absl::kZeroPad16), absl::Hex(Random64(), absl::kZeroPad16));
}

std::variant<GenerateSpec, Refusal> Codec::Decode(v1::GenerateRequest&& request, std::string request_id,
                                                  const CallContext& context) const {
  GenerateSpec spec;
  spec.request_id = std::move(request_id);
  spec.arrival = context.arrival;
  spec.tenant = context.caller.tenant;
  spec.trace_id = context.headers.trace_id;
  const auto decode = [&]() -> std::optional<Refusal> {
    BERTH_RETURN_IF_REFUSED(CheckRequestId(request.request_id()));
    BERTH_RETURN_IF_REFUSED(DecodePrompt(&request, &spec));
    BERTH_RETURN_IF_REFUSED(DecodeDeadline(request, context.deadline, &spec));
    BERTH_RETURN_IF_REFUSED(DecodeSampling(request.sampling(), *context.policy, &spec.sampling));
    BERTH_RETURN_IF_REFUSED(DecodeStopping(request.stopping(), &spec.stopping));
    BERTH_RETURN_IF_REFUSED(DecodeOutput(request.output(), &spec.output));
    BERTH_RETURN_IF_REFUSED(CheckModel(request.model()));
    BERTH_RETURN_IF_REFUSED(DecodeClass(request.service_class(), context, &spec));
    const ClassPolicy& service_class = context.policy->classes[static_cast<std::size_t>(spec.service_class)];
    std::optional<Refusal> refused = ApplyClass(service_class, &spec);
    if (refused) refused->service_class = service_class.name;
    return refused;
  };
  if (std::optional<Refusal> refused = decode()) return *std::move(refused);
  return spec;
}

std::optional<Refusal> Codec::DecodeClass(std::string_view field, const CallContext& context,
                                          GenerateSpec* spec) const {
  const Policy& policy = *context.policy;
  spec->service_class = ClassAskedFor(field, context.headers, policy);
  if (spec->service_class == kNoClass) {
    std::string known;
    for (const ClassPolicy& c : policy.classes) {
      if (!c.removed) absl::StrAppend(&known, known.empty() ? "" : ", ", c.name);
    }
    Refusal refusal;
    refusal.reason = RefusalReason::kUnknownClass;
    refusal.field = field.empty() ? "x-berth-class" : "service_class";
    // The name is the caller's: bounded before it is repeated.
    refusal.message =
        absl::StrCat(refusal.field, " '", std::string(CutAtCharacter(NameAskedFor(field, context.headers), 128)),
                     "' is not known here: leave it empty or use one of ", known);
    return refusal;
  }
  const std::optional<std::vector<ClassId>>& allowed = policy.tenants[static_cast<std::size_t>(spec->tenant)].classes;
  if (!allowed || std::find(allowed->begin(), allowed->end(), spec->service_class) != allowed->end()) {
    return std::nullopt;
  }
  Refusal refusal;
  refusal.reason = RefusalReason::kClassNotAllowed;
  refusal.field = "service_class";
  refusal.service_class = policy.classes[static_cast<std::size_t>(spec->service_class)].name;
  refusal.message = absl::StrCat("tenant '", context.caller.tenant_name, "' may not use class '", refusal.service_class,
                                 "': use another class");
  return refusal;
}

// What the request leaves open is as its class says.
std::optional<Refusal> Codec::ApplyClass(const ClassPolicy& service_class, GenerateSpec* spec) const {
  StoppingSpec& stopping = spec->stopping;
  if (stopping.max_output_tokens_is_default) {
    stopping.max_output_tokens = static_cast<std::int32_t>(service_class.default_output_tokens);
  }
  if (stopping.min_output_tokens < 0 || stopping.min_output_tokens > stopping.max_output_tokens) {
    return Invalid(
        "stopping.min_output_tokens",
        absl::StrCat("is ", stopping.min_output_tokens, ": it must be at least 0 and at most max_output_tokens (",
                     stopping.max_output_tokens, stopping.max_output_tokens_is_default ? " by default)" : ")"));
  }
  if (!service_class.default_timeout) return std::nullopt;
  const TimePoint own = spec->arrival + *service_class.default_timeout;
  if (own >= spec->deadline) return std::nullopt;
  spec->deadline = own;
  spec->partial_at_deadline = true;
  return std::nullopt;
}

std::optional<Refusal> Codec::CheckModel(const std::string& model) const {
  if (model.empty() || model == model_name_) return std::nullopt;
  Refusal refusal;
  refusal.reason = RefusalReason::kModelNotFound;
  // The name is the caller's: bounded before it is repeated.
  refusal.message = absl::StrCat("no model named '", std::string(CutAtCharacter(model, 128)),
                                 "' is served here: leave model empty or say '", model_name_, "'");
  refusal.field = "model";
  return refusal;
}

std::optional<Refusal> Codec::CheckPromptBytes(const GenerateSpec& spec) const {
  if (spec.prompt_is_ids) return std::nullopt;
  const std::int64_t limit = std::int64_t{max_context_tokens_} * tokenizer_->longest_piece_bytes();
  const auto bytes = static_cast<std::int64_t>(spec.prompt_text.size());
  if (bytes <= limit) return std::nullopt;
  Refusal refusal;
  refusal.reason = RefusalReason::kRequestTooLarge;
  refusal.message = absl::StrCat("the prompt of ", bytes, " bytes is longer than any text that fits the context of ",
                                 max_context_tokens_, " tokens (", limit, " bytes): shorten it");
  refusal.field = "text";
  refusal.limit_name = "prompt_bytes";
  refusal.limit = limit;
  refusal.asked = bytes;
  return refusal;
}

std::optional<Refusal> Codec::CheckRequestId(const std::string& id) const {
  if (id.size() > static_cast<std::size_t>(limits_.max_request_id_bytes)) {
    return Invalid("request_id", absl::StrCat("has ", id.size(), " bytes: at most ", limits_.max_request_id_bytes,
                                              " printable ASCII characters are taken"));
  }
  if (!IsPrintableAscii(id)) return Invalid("request_id", "has a character that is not printable ASCII");
  return std::nullopt;
}

std::optional<Refusal> Codec::CheckTokenId(const char* field, std::int64_t id) const {
  if (id >= 0 && id < tokenizer_->vocab_size()) return std::nullopt;
  return Invalid(field,
                 absl::StrCat("has the id ", id, ": the vocabulary has the ids 0 to ", tokenizer_->vocab_size() - 1));
}

std::optional<Refusal> Codec::DecodePrompt(v1::GenerateRequest* request, GenerateSpec* spec) const {
  spec->parse_special_tokens = request->parse_special_tokens();
  switch (request->prompt_case()) {
    case v1::GenerateRequest::kText:
      if (request->text().empty()) return Invalid("text", "is empty: a prompt needs at least one character");
      spec->prompt_text = std::move(*request->mutable_text());
      return std::nullopt;
    case v1::GenerateRequest::kTokenIds:
      if (request->token_ids().ids().empty()) {
        return Invalid("token_ids.ids", "is empty: a prompt needs at least one token");
      }
      for (const std::int32_t id : request->token_ids().ids()) {
        BERTH_RETURN_IF_REFUSED(CheckTokenId("token_ids.ids", id));
      }
      spec->prompt_ids.assign(request->token_ids().ids().begin(), request->token_ids().ids().end());
      spec->prompt_is_ids = true;
      return std::nullopt;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return Invalid("prompt", "is missing: set text or token_ids");
}

std::optional<Refusal> Codec::DecodeDeadline(const v1::GenerateRequest& request, TimePoint call_deadline,
                                             GenerateSpec* spec) const {
  spec->deadline = call_deadline;
  spec->partial_at_deadline = false;
  if (!request.has_timeout()) return std::nullopt;
  const std::int64_t seconds = request.timeout().seconds();
  const std::int32_t nanos = request.timeout().nanos();
  if (seconds < 0 || nanos < 0 || nanos > 999'999'999 || (seconds == 0 && nanos == 0)) {
    return Invalid("timeout", absl::StrCat("is ", seconds, " s and ", nanos, " ns: it must be a duration above 0"));
  }
  if (seconds >= kForeverSeconds) return std::nullopt;
  const TimePoint own = spec->arrival + std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanos);
  if (own >= call_deadline) return std::nullopt;
  spec->deadline = own;
  spec->partial_at_deadline = true;
  return std::nullopt;
}

std::optional<Refusal> Codec::DecodeSampling(const v1::Sampling& in, const Policy& policy, SamplingSpec* out) const {
  if (in.has_temperature()) out->temperature = in.temperature();
  if (in.has_top_k()) out->top_k = in.top_k();
  if (in.has_top_p()) out->top_p = in.top_p();
  if (in.has_min_p()) out->min_p = in.min_p();
  if (in.has_repetition_penalty()) out->repetition_penalty = in.repetition_penalty();
  if (in.has_presence_penalty()) out->presence_penalty = in.presence_penalty();
  if (in.has_frequency_penalty()) out->frequency_penalty = in.frequency_penalty();
  if (in.has_n()) out->n = in.n();
  if (out->n < 1 || out->n > policy.max_running_sequences) {
    Refusal refusal = Invalid(
        "sampling.n", absl::StrCat("is ", out->n, ": it must be at least 1 and at most ", policy.max_running_sequences,
                                   ", the sequences that run at once (max_running_sequences)"));
    if (out->n < 1) return refusal;
    refusal.limit_name = "max_running_sequences";
    refusal.limit = policy.max_running_sequences;
    refusal.asked = out->n;
    return refusal;
  }
  if (out->top_k < 0) {
    return Invalid("sampling.top_k", absl::StrCat("is ", out->top_k, ": it must be at least 0 (0 = all tokens)"));
  }

  const Bounds<float> penalty{-kMaxPresencePenalty, kMaxPresencePenalty};
  BERTH_RETURN_IF_REFUSED(CheckBounds("sampling.temperature", out->temperature, {0.0F, kMaxTemperature}));
  BERTH_RETURN_IF_REFUSED(CheckBounds("sampling.top_p", out->top_p, {0.0F, 1.0F, true}));
  BERTH_RETURN_IF_REFUSED(CheckBounds("sampling.min_p", out->min_p, {0.0F, 1.0F}));
  BERTH_RETURN_IF_REFUSED(
      CheckBounds("sampling.repetition_penalty", out->repetition_penalty, {0.0F, kMaxRepetitionPenalty, true}));
  BERTH_RETURN_IF_REFUSED(CheckBounds("sampling.presence_penalty", out->presence_penalty, penalty));
  BERTH_RETURN_IF_REFUSED(CheckBounds("sampling.frequency_penalty", out->frequency_penalty, penalty));
  BERTH_RETURN_IF_REFUSED(DecodeLogitBias(in, out));

  if (in.has_seed()) {
    out->seed = in.seed();
  } else {
    out->seed = Random64();
  }
  return std::nullopt;
}

std::optional<Refusal> Codec::DecodeLogitBias(const v1::Sampling& in, SamplingSpec* out) const {
  if (in.logit_bias_size() > limits_.max_logit_bias) {
    return Invalid("sampling.logit_bias", absl::StrCat("has ", in.logit_bias_size(), " entries: at most ",
                                                       limits_.max_logit_bias, " are taken"));
  }
  for (const auto& [id, bias] : in.logit_bias()) {
    BERTH_RETURN_IF_REFUSED(CheckTokenId("sampling.logit_bias", id));
    BERTH_RETURN_IF_REFUSED(CheckBounds("sampling.logit_bias", bias, {-kMaxLogitBias, kMaxLogitBias}));
    out->logit_bias.emplace_back(id, bias);
  }
  // Protobuf's map has no order.
  std::sort(out->logit_bias.begin(), out->logit_bias.end());
  return std::nullopt;
}

std::optional<Refusal> Codec::DecodeStopping(const v1::Stopping& in, StoppingSpec* out) const {
  out->max_output_tokens_is_default = !in.has_max_output_tokens();
  out->max_output_tokens = in.max_output_tokens();
  out->min_output_tokens = in.min_output_tokens();
  out->include_stop_text = in.include_stop_text();
  out->ignore_eos = in.ignore_eos();
  if (in.has_max_output_tokens() && out->max_output_tokens < 1) {
    return Invalid("stopping.max_output_tokens",
                   absl::StrCat("is ", out->max_output_tokens, ": it must be at least 1"));
  }
  return DecodeStops(in, out);
}

std::optional<Refusal> Codec::DecodeStops(const v1::Stopping& in, StoppingSpec* out) const {
  if (in.stop_strings_size() > limits_.max_stop_strings) {
    return Invalid("stopping.stop_strings", absl::StrCat("has ", in.stop_strings_size(), " entries: at most ",
                                                         limits_.max_stop_strings, " are taken"));
  }
  for (const std::string& stop : in.stop_strings()) {
    if (stop.empty()) return Invalid("stopping.stop_strings", "has an empty entry, which would match everywhere");
    if (stop.size() > static_cast<std::size_t>(limits_.max_stop_string_bytes)) {
      return Invalid("stopping.stop_strings", absl::StrCat("has an entry of ", stop.size(), " bytes: at most ",
                                                           limits_.max_stop_string_bytes, " are taken"));
    }
    out->stop_strings.push_back(stop);
  }
  if (in.stop_token_ids_size() > kMaxStopTokenIds) {
    return Invalid("stopping.stop_token_ids", absl::StrCat("has ", in.stop_token_ids_size(), " entries: at most ",
                                                           kMaxStopTokenIds, " are taken"));
  }
  for (const std::int32_t id : in.stop_token_ids()) {
    BERTH_RETURN_IF_REFUSED(CheckTokenId("stopping.stop_token_ids", id));
    out->stop_token_ids.push_back(id);
  }
  return std::nullopt;
}

std::optional<Refusal> Codec::DecodeOutput(const v1::Output& in, OutputSpec* out) const {
  const Bounds<std::int32_t> bounds{0, limits_.max_logprobs};
  if (in.has_logprobs()) {
    BERTH_RETURN_IF_REFUSED(CheckBounds("output.logprobs", in.logprobs(), bounds));
    out->logprobs = in.logprobs();
  }
  if (in.has_prompt_logprobs()) {
    BERTH_RETURN_IF_REFUSED(CheckBounds("output.prompt_logprobs", in.prompt_logprobs(), bounds));
    out->prompt_logprobs = in.prompt_logprobs();
  }
  out->return_token_ids = in.return_token_ids();
  out->echo_prompt = in.echo_prompt();
  return std::nullopt;
}

}  // namespace berth
