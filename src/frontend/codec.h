// The only reader of GenerateRequest: everything a client may say is checked here once, and defaults are filled in, so
// that nothing behind it meets an optional or a number out of range.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/policy.h"
#include "berth/request.h"
#include "berth/v1/inference.pb.h"
#include "frontend/call_headers.h"
#include "frontend/identity.h"
#include "frontend/server.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// Bounds that are the API's own, not an operator's; proto/berth/v1/inference.proto names them.
inline constexpr float kMaxTemperature = 100.0F;
inline constexpr float kMaxRepetitionPenalty = 10.0F;
inline constexpr float kMaxPresencePenalty = 2.0F;  // and frequency_penalty; either sign
inline constexpr float kMaxLogitBias = 100.0F;      // either sign
inline constexpr std::int32_t kMaxStopTokenIds = 1024;

// What a call says beside its message.
struct CallContext {
  TimePoint arrival{};
  TimePoint deadline = kNoDeadline;  // the gRPC call's
  Caller caller;
  CallHeaders headers;
  std::shared_ptr<const Policy> policy;  // by which it is judged
};

// The class that a request asks for: `field` if it says one, else x-berth-class, else the one that lists a gateway's
// objective, else the default. kNoClass where it names one that is not there.
ClassId ClassAskedFor(std::string_view field, const CallHeaders& headers, const Policy& policy);

// Immutable; thread-safe. Text fields are UTF-8 already: protobuf refuses to parse others.
class Codec {
 public:
  // `tokenizer` must outlive the codec.
  Codec(const RequestLimits& limits, std::string model_name, std::int32_t max_context_tokens,
        const Tokenizer* tokenizer);

  // The caller's id, or one of ours ("berth-" and 128 random bits) where it gave none or one that is no id.
  std::string ResolveRequestId(const v1::GenerateRequest& request) const;

  // `request_id` is what ResolveRequestId gave; the caller's tenant is resolved. A refusal names the first field at
  // fault in proto spelling: first what is malformed, then the model, then the class. `request` is taken apart.
  std::variant<GenerateSpec, Refusal> Decode(v1::GenerateRequest&& request, std::string request_id,
                                             const CallContext& context) const;

  // MODEL_NOT_FOUND, unless `model` is empty or the served name.
  std::optional<Refusal> CheckModel(const std::string& model) const;

  // INVALID_REQUEST naming `field`, where `id` is not in the vocabulary.
  std::optional<Refusal> CheckTokenId(const char* field, std::int64_t id) const;

  // REQUEST_TOO_LARGE where the text is so long that no tokenization of it fits the context: cheaper than tokenizing
  // it.
  std::optional<Refusal> CheckPromptBytes(const GenerateSpec& spec) const;

 private:
  std::optional<Refusal> DecodeClass(std::string_view field, const CallContext& context, GenerateSpec* spec) const;
  std::optional<Refusal> ApplyClass(const ClassPolicy& service_class, GenerateSpec* spec) const;
  std::optional<Refusal> CheckRequestId(const std::string& id) const;
  std::optional<Refusal> DecodePrompt(v1::GenerateRequest* request, GenerateSpec* spec) const;
  std::optional<Refusal> DecodeDeadline(const v1::GenerateRequest& request, TimePoint call_deadline,
                                        GenerateSpec* spec) const;
  std::optional<Refusal> DecodeSampling(const v1::Sampling& in, const Policy& policy, SamplingSpec* out) const;
  std::optional<Refusal> DecodeLogitBias(const v1::Sampling& in, SamplingSpec* out) const;
  std::optional<Refusal> DecodeStopping(const v1::Stopping& in, StoppingSpec* out) const;
  std::optional<Refusal> DecodeStops(const v1::Stopping& in, StoppingSpec* out) const;
  std::optional<Refusal> DecodeOutput(const v1::Output& in, OutputSpec* out) const;

  const RequestLimits limits_;
  const std::string model_name_;
  const std::int32_t max_context_tokens_;
  const Tokenizer* const tokenizer_;
};

}  // namespace berth
