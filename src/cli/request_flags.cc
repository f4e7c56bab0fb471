#include "cli/request_flags.h"

#include <charconv>
#include <cmath>
#include <random>
#include <type_traits>

#include "absl/status/status.h"
#include "cli/input.h"

namespace berth::cli {
namespace {

constexpr float kMaxTemperature = 100.0F;
constexpr float kMaxRepetitionPenalty = 100.0F;
constexpr float kMaxPenalty = 2.0F;
constexpr float kMaxBias = 1000.0F;
constexpr std::int32_t kMaxChoices = 1024;  // the engine may take fewer, and says so

constexpr const char* kPrompt = "Prompt";
constexpr const char* kSampling = "Sampling";
constexpr const char* kStopping = "Stopping";
constexpr const char* kOutput = "Output";

void AddSeedFlag(CLI::App* app, RequestFlags* flags) {
  app->add_option("--seed", flags->seed, "the same seed draws the same tokens; default: a random one")
      ->check([](const std::string& value) -> std::string {
        std::uint64_t seed = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seed);
        return error == std::errc() && end == value.data() + value.size()
                   ? ""
                   : "must be a whole number from 0 to 2^64 - 1, not \"" + value + "\"";
      })
      ->option_text("N")
      ->group(kSampling);
}

// "ID=B"
std::optional<std::pair<TokenId, float>> ParseBias(const std::string& value) {
  const char* end = value.data() + value.size();
  TokenId id = 0;
  float bias = 0;
  const auto [after_id, id_error] = std::from_chars(value.data(), end, id);
  if (id_error != std::errc() || after_id == end || *after_id != '=') return std::nullopt;
  const auto [after_bias, bias_error] = std::from_chars(after_id + 1, end, bias);
  if (bias_error != std::errc() || after_bias != end) return std::nullopt;
  return std::pair(id, bias);
}

void AddBiasFlag(CLI::App* app, RequestFlags* flags, const RequestSettings& limits) {
  app->add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [flags, limits](const std::vector<std::string>& values) {
           for (const std::string& value : values) {
             const auto bias = ParseBias(value);
             if (!bias)
               throw CLI::ValidationError("--logit-bias", "must be ID=B, such as 42=-5, not \"" + value + "\"");
             const absl::Status status = AddLogitBias(bias->first, bias->second, limits, &flags->sampling);
             if (!status.ok()) throw CLI::ValidationError("--logit-bias", std::string(status.message()));
           }
         },
         "added to a token's logit")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->option_text("ID=B ...")
      ->group(kSampling);
}

void AddStopFlags(CLI::App* app, RequestFlags* flags) {
  StoppingSpec& stopping = flags->stopping;
  AddTexts(app, "--stop", &stopping.stop_strings, "TEXT", "end before this text appears")->group(kStopping);
  app->add_option_function<std::vector<std::string>>(
         "--stop-token-id",
         [&stopping](const std::vector<std::string>& values) {
           for (const std::string& value : values) {
             const absl::StatusOr<std::vector<TokenId>> ids = ParseTokenIds(value);
             if (!ids.ok()) throw CLI::ValidationError("--stop-token-id", std::string(ids.status().message()));
             stopping.stop_token_ids.insert(stopping.stop_token_ids.end(), ids->begin(), ids->end());
           }
         },
         "end with this token")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->option_text("ID ...")
      ->group(kStopping);
}

}  // namespace

std::vector<RequestField> RequestFields(const RequestSettings& limits) {
  using Float = RequestField::Float;
  using Int = RequestField::Int;
  using Switch = RequestField::Switch;
  using Flags = RequestFlags;
  const std::string length = "most tokens to generate; default " + std::to_string(limits.default_output_tokens) +
                             ", or what the context leaves";
  return {
      {"--parse-special", "parse_special_tokens", kPrompt, Switch{[](Flags& f) -> bool& { return f.parse_special; }},
       "special tokens spelled out in the prompt (<|im_start|>) become those tokens; otherwise they are text"},

      {"--temperature", "temperature", kSampling,
       Float{[](Flags& f) -> float& { return f.sampling.temperature; }, 0.0F, kMaxTemperature},
       "0 = the most likely token each time; default 0"},
      {"--top-k", "top_k", kSampling, Int{[](Flags& f) -> std::int32_t& { return f.sampling.top_k; }, 0, INT32_MAX},
       "draw from the N most likely; 0 = off"},
      {"--top-p", "top_p", kSampling, Float{[](Flags& f) -> float& { return f.sampling.top_p; }, 0.0F, 1.0F, true},
       "draw from the most likely that reach X together; 1 = off"},
      {"--min-p", "min_p", kSampling, Float{[](Flags& f) -> float& { return f.sampling.min_p; }, 0.0F, 1.0F},
       "leave out those below X times the most likely; 0 = off"},
      {"--repetition-penalty", "repetition_penalty", kSampling,
       Float{[](Flags& f) -> float& { return f.sampling.repetition_penalty; }, 0.0F, kMaxRepetitionPenalty, true},
       "above 1: tokens seen in prompt or output get less likely; 1 = off"},
      {"--presence-penalty", "presence_penalty", kSampling,
       Float{[](Flags& f) -> float& { return f.sampling.presence_penalty; }, -kMaxPenalty, kMaxPenalty},
       "taken from the logit of every token already in the output"},
      {"--frequency-penalty", "frequency_penalty", kSampling,
       Float{[](Flags& f) -> float& { return f.sampling.frequency_penalty; }, -kMaxPenalty, kMaxPenalty},
       "the same, for each time it occurred"},
      {"-n,--n", "n", kSampling, Int{[](Flags& f) -> std::int32_t& { return f.sampling.n; }, 1, kMaxChoices},
       "choices for one prompt; default 1"},

      {"--max-tokens", "max_output_tokens", kStopping,
       Int{[](Flags& f) -> std::int32_t& { return f.stopping.max_output_tokens; }, 1, INT32_MAX}, length},
      {"--min-tokens", "min_output_tokens", kStopping,
       Int{[](Flags& f) -> std::int32_t& { return f.stopping.min_output_tokens; }, 0, INT32_MAX},
       "no end of text before so many tokens"},
      {"--include-stop", "include_stop_text", kStopping,
       Switch{[](Flags& f) -> bool& { return f.stopping.include_stop_text; }}, "keep the stop text in the output"},
      {"--ignore-eos", "ignore_eos", kStopping, Switch{[](Flags& f) -> bool& { return f.stopping.ignore_eos; }},
       "go on past the model's own end of text"},

      {"--logprobs", "logprobs", kOutput,
       Int{[](Flags& f) -> std::int32_t& { return f.output.logprobs; }, 0, limits.max_logprobs},
       "log-probability of each output token and of the N most likely (shown in JSON)"},
      {"--prompt-logprobs", "prompt_logprobs", kOutput,
       Int{[](Flags& f) -> std::int32_t& { return f.output.prompt_logprobs; }, 0, limits.max_logprobs},
       "the same for the prompt's tokens"},
      {"--echo", "echo_prompt", kOutput, Switch{[](Flags& f) -> bool& { return f.output.echo_prompt; }},
       "put the prompt in front of the text"},
  };
}

void AddRequestField(CLI::App* app, const RequestField& field, RequestFlags* flags) {
  CLI::Option* option = nullptr;
  if (const auto* number = std::get_if<RequestField::Float>(&field.value)) {
    option = AddFloat(app, field.flag, &number->of(*flags), number->min, number->max, number->above_min, field.help);
  } else if (const auto* whole = std::get_if<RequestField::Int>(&field.value)) {
    option = AddInt(app, field.flag, &whole->of(*flags), whole->min, whole->max, field.help);
  } else {
    option = app->add_flag(field.flag, std::get<RequestField::Switch>(field.value).of(*flags), field.help);
  }
  option->group(field.group);
}

void AddRequestFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits) {
  for (const RequestField& field : RequestFields(limits)) AddRequestField(app, field, flags);
  AddListFlags(app, flags, limits);
}

void AddListFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits) {
  AddSeedFlag(app, flags);
  AddBiasFlag(app, flags, limits);
  AddStopFlags(app, flags);
}

absl::Status AddLogitBias(TokenId id, float bias, const RequestSettings& limits, SamplingSpec* sampling) {
  if (id < 0) return absl::InvalidArgumentError("has the id " + std::to_string(id) + ": ids start at 0");
  if (!std::isfinite(bias) || std::fabs(bias) > kMaxBias) {
    return absl::InvalidArgumentError("must be a number from -1000 to 1000 for token " + std::to_string(id));
  }
  for (const auto& [other, value] : sampling->logit_bias) {
    if (other == id) return absl::InvalidArgumentError("names token " + std::to_string(id) + " twice");
  }
  if (static_cast<std::int64_t>(sampling->logit_bias.size()) >= limits.max_logit_bias) {
    return absl::InvalidArgumentError("may name " + std::to_string(limits.max_logit_bias) + " tokens at most");
  }
  sampling->logit_bias.emplace_back(id, bias);
  return absl::OkStatus();
}

absl::Status CheckStopStrings(const std::vector<std::string>& stops, const RequestSettings& limits,
                              std::string_view name) {
  if (static_cast<std::int64_t>(stops.size()) > limits.max_stop_strings) {
    return absl::InvalidArgumentError(std::string(name) + " has " + std::to_string(stops.size()) + " texts: at most " +
                                      std::to_string(limits.max_stop_strings) + " are taken");
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || static_cast<std::int64_t>(stop.size()) > limits.max_stop_string_bytes) {
      return absl::InvalidArgumentError(std::string(name) + " must have 1 to " +
                                        std::to_string(limits.max_stop_string_bytes) + " bytes, not " +
                                        std::to_string(stop.size()));
    }
  }
  return absl::OkStatus();
}

void AddPromptFlags(CLI::App* app, PromptFlags* flags) {
  app->add_option("--prompt", flags->text, "the text to go on from")->option_text("TEXT")->group(kPrompt);
  AddText(app, "--prompt-file", &flags->file, "FILE", "instead: the text in a file; - is standard input")
      ->group(kPrompt);
  app->add_option("--prompt-ids", flags->ids, "instead: token ids, used as they are")
      ->option_text("1,2,3")
      ->group(kPrompt);
}

absl::Status ReadPrompt(const PromptFlags& flags, GenerateSpec* spec) {
  const int given = static_cast<int>(flags.text.has_value()) + static_cast<int>(!flags.file.empty()) +
                    static_cast<int>(flags.ids.has_value());
  if (given != 1) {
    return absl::InvalidArgumentError(given == 0 ? "a prompt is missing: give --prompt, --prompt-file or --prompt-ids"
                                                 : "give only one of --prompt, --prompt-file and --prompt-ids");
  }
  if (flags.ids) {
    absl::StatusOr<std::vector<TokenId>> ids = ParseTokenIds(*flags.ids);
    if (!ids.ok()) return absl::InvalidArgumentError("--prompt-ids: " + std::string(ids.status().message()));
    spec->prompt_ids = *std::move(ids);
    spec->prompt_is_ids = true;
  } else if (flags.text) {
    spec->prompt_text = *flags.text;
  } else {
    absl::StatusOr<std::string> text = ReadTextFile(flags.file);
    if (!text.ok()) return absl::InvalidArgumentError("--prompt-file: " + std::string(text.status().message()));
    spec->prompt_text = *std::move(text);
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateSpec> MakeSpec(const RequestFlags& flags, const RequestSettings& limits) {
  if (absl::Status status = CheckStopStrings(flags.stopping.stop_strings, limits, "--stop"); !status.ok())
    return status;
  GenerateSpec spec;
  spec.parse_special_tokens = flags.parse_special;
  spec.sampling = flags.sampling;
  spec.sampling.seed =
      flags.seed.has_value() ? *flags.seed : (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  spec.stopping = flags.stopping;
  if (spec.stopping.max_output_tokens == 0) {
    spec.stopping.max_output_tokens = limits.default_output_tokens;
    spec.stopping.max_output_tokens_is_default = true;
  }
  spec.output = flags.output;
  return spec;
}

}  // namespace berth::cli
