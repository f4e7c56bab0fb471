// What a request may say beside its prompt, once for all that take requests: as flags of `generate`, `batch` and
// `client generate`, and as members of a line of `batch`'s input.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/request.h"
#include "cli/flags.h"
#include "config/server_config.h"

namespace berth::cli {

// What was given; what was left out keeps its default.
struct RequestFlags {
  RequestFlags() { sampling.temperature = 0.0F; }  // the command line's default

  bool parse_special = false;
  SamplingSpec sampling;
  std::optional<std::uint64_t> seed;
  StoppingSpec stopping;  // max_output_tokens 0 = left out
  OutputSpec output;
};

// One setting with a name, a type and bounds.
struct RequestField {
  struct Float {
    float& (*of)(RequestFlags&);
    float min;
    float max;
    bool above_min = false;  // min itself is outside
  };
  struct Int {
    std::int32_t& (*of)(RequestFlags&);
    std::int32_t min;
    std::int32_t max;
  };
  struct Switch {
    bool& (*of)(RequestFlags&);
  };

  const char* flag;   // "--max-tokens"
  const char* field;  // "max_output_tokens": the API's name
  const char* group;
  std::variant<Float, Int, Switch> value;
  std::string help;
};

// All but seed, biases and stops, in the order of the help.
std::vector<RequestField> RequestFields(const RequestSettings& limits);

void AddRequestField(CLI::App* app, const RequestField& field, RequestFlags* flags);
// Flags for all fields, then as AddListFlags.
void AddRequestFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits);
// --seed, --logit-bias, --stop, --stop-token-id.
void AddListFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits);

// A bias for a token. Errors say what the bounds are, and are to follow the name of the flag or field.
absl::Status AddLogitBias(TokenId id, float bias, const RequestSettings& limits, SamplingSpec* sampling);
// As many stop strings as may be given, each of a length that may be given; errors begin with `name`.
absl::Status CheckStopStrings(const std::vector<std::string>& stops, const RequestSettings& limits,
                              std::string_view name);

// --prompt, --prompt-file, --prompt-ids: exactly one is to be given.
struct PromptFlags {
  std::optional<std::string> text;
  std::string file;
  std::optional<std::string> ids;
};
void AddPromptFlags(CLI::App* app, PromptFlags* flags);
absl::Status ReadPrompt(const PromptFlags& flags, GenerateSpec* spec);

// The request that the flags describe. A seed that was left out is drawn. The prompt, `request_id`, `arrival` and
// `deadline` are the caller's to set. Ids are not compared with a vocabulary.
absl::StatusOr<GenerateSpec> MakeSpec(const RequestFlags& flags, const RequestSettings& limits);

}  // namespace berth::cli
