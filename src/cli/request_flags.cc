#include "cli/request_flags.h"

#include <charconv>
#include <cmath>
#include <random>
#include <set>

#include "absl/status/status.h"
#include "cli/input.h"

namespace berth::cli {
namespace {

constexpr float kMaxTemperature = 100.0F;
constexpr float kMaxRepetitionPenalty = 100.0F;
constexpr float kMaxBias = 1000.0F;

void AddPromptFlags(CLI::App* app, RequestFlags* flags) {
  const char* group = "Prompt";
  app->add_option("--prompt", flags->prompt, "the text to go on from")->option_text("TEXT")->group(group);
  AddText(app, "--prompt-file", &flags->prompt_file, "FILE", "instead: the text in a file; - is standard input")
      ->group(group);
  app->add_option("--prompt-ids", flags->prompt_ids, "instead: token ids, used as they are")
      ->option_text("1,2,3")
      ->group(group);
  app->add_flag("--parse-special", flags->parse_special,
                "special tokens spelled out in the prompt (<|im_start|>) become those tokens; otherwise they are text")
      ->group(group);
}

void AddSamplingFlags(CLI::App* app, RequestFlags* flags) {
  SamplingSpec& sampling = flags->sampling;
  const char* group = "Sampling";
  AddFloat(app, "--temperature", &sampling.temperature, 0.0F, kMaxTemperature, false,
           "0 = the most likely token each time; default 0")
      ->group(group);
  AddInt(app, "--top-k", &sampling.top_k, 0, INT32_MAX, "draw from the N most likely; 0 = off")->group(group);
  AddFloat(app, "--top-p", &sampling.top_p, 0.0F, 1.0F, true,
           "draw from the most likely that reach X together; 1 = off")
      ->group(group);
  AddFloat(app, "--min-p", &sampling.min_p, 0.0F, 1.0F, false, "leave out those below X times the most likely; 0 = off")
      ->group(group);
  app->add_option("--seed", flags->seed, "the same seed draws the same tokens; default: a random one")
      ->check([](const std::string& value) -> std::string {
        std::uint64_t seed = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seed);
        return error == std::errc() && end == value.data() + value.size()
                   ? ""
                   : "must be a whole number from 0 to 2^64 - 1, not \"" + value + "\"";
      })
      ->option_text("N")
      ->group(group);
  AddFloat(app, "--repetition-penalty", &sampling.repetition_penalty, 0.0F, kMaxRepetitionPenalty, true,
           "above 1: tokens seen in prompt or output get less likely; 1 = off")
      ->group(group);
  AddFloat(app, "--presence-penalty", &sampling.presence_penalty, -2.0F, 2.0F, false,
           "taken from the logit of every token already in the output")
      ->group(group);
  AddFloat(app, "--frequency-penalty", &sampling.frequency_penalty, -2.0F, 2.0F, false,
           "the same, for each time it occurred")
      ->group(group);
  AddTexts(app, "--logit-bias", &flags->logit_bias, "ID=B", "added to a token's logit")->group(group);
}

void AddStoppingFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits) {
  StoppingSpec& stopping = flags->stopping;
  const char* group = "Stopping";
  AddInt(app, "--max-tokens", &stopping.max_output_tokens, 1, INT32_MAX,
         "most tokens to generate; default " + std::to_string(limits.default_output_tokens) +
             ", or what the context leaves")
      ->group(group);
  AddInt(app, "--min-tokens", &stopping.min_output_tokens, 0, INT32_MAX, "no end of text before so many tokens")
      ->group(group);
  AddTexts(app, "--stop", &stopping.stop_strings, "TEXT", "end before this text appears")->group(group);
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
      ->group(group);
  app->add_flag("--include-stop", stopping.include_stop_text, "keep the stop text in the output")->group(group);
  app->add_flag("--ignore-eos", stopping.ignore_eos, "go on past the model's own end of text")->group(group);
}

absl::Status ReadPrompt(const RequestFlags& flags, GenerateSpec* spec) {
  const int given = static_cast<int>(flags.prompt.has_value()) + static_cast<int>(!flags.prompt_file.empty()) +
                    static_cast<int>(flags.prompt_ids.has_value());
  if (given != 1) {
    return absl::InvalidArgumentError(given == 0 ? "a prompt is missing: give --prompt, --prompt-file or --prompt-ids"
                                                 : "give only one of --prompt, --prompt-file and --prompt-ids");
  }
  if (flags.prompt_ids) {
    absl::StatusOr<std::vector<TokenId>> ids = ParseTokenIds(*flags.prompt_ids);
    if (!ids.ok()) return absl::InvalidArgumentError("--prompt-ids: " + std::string(ids.status().message()));
    spec->prompt_ids = *std::move(ids);
    spec->prompt_is_ids = true;
  } else if (flags.prompt) {
    spec->prompt_text = *flags.prompt;
  } else {
    absl::StatusOr<std::string> text = ReadTextFile(flags.prompt_file);
    if (!text.ok()) return absl::InvalidArgumentError("--prompt-file: " + std::string(text.status().message()));
    spec->prompt_text = *std::move(text);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<TokenId, float>>> ParseLogitBias(const std::vector<std::string>& values) {
  std::vector<std::pair<TokenId, float>> biases;
  std::set<TokenId> seen;
  for (const std::string& value : values) {
    const char* end = value.data() + value.size();
    TokenId id = 0;
    float bias = 0;
    const auto [after_id, id_error] = std::from_chars(value.data(), end, id);
    bool valid = id_error == std::errc() && id >= 0 && after_id != end && *after_id == '=';
    if (valid) {
      const auto [after_bias, bias_error] = std::from_chars(after_id + 1, end, bias);
      valid = bias_error == std::errc() && after_bias == end && std::isfinite(bias) && std::fabs(bias) <= kMaxBias;
    }
    if (!valid) {
      return absl::InvalidArgumentError("--logit-bias must be ID=B, such as 42=-5, B from -1000 to 1000, not \"" +
                                        value + "\"");
    }
    if (!seen.insert(id).second) {
      return absl::InvalidArgumentError("--logit-bias names token " + std::to_string(id) + " twice");
    }
    biases.emplace_back(id, bias);
  }
  return biases;
}

absl::Status CheckStops(const StoppingSpec& stopping, const RequestSettings& limits) {
  if (static_cast<std::int64_t>(stopping.stop_strings.size()) > limits.max_stop_strings) {
    return absl::InvalidArgumentError("--stop may be given " + std::to_string(limits.max_stop_strings) +
                                      " times at most");
  }
  for (const std::string& stop : stopping.stop_strings) {
    if (stop.empty() || static_cast<std::int64_t>(stop.size()) > limits.max_stop_string_bytes) {
      return absl::InvalidArgumentError("--stop must have 1 to " + std::to_string(limits.max_stop_string_bytes) +
                                        " bytes, not " + std::to_string(stop.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddRequestFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits) {
  flags->sampling.temperature = 0.0F;
  AddPromptFlags(app, flags);
  AddSamplingFlags(app, flags);
  AddStoppingFlags(app, flags, limits);
  const char* group = "Output";
  AddInt(app, "--logprobs", &flags->output.logprobs, 0, limits.max_logprobs,
         "log-probability of each output token and of the N most likely (shown with --json)")
      ->group(group);
  AddInt(app, "--prompt-logprobs", &flags->output.prompt_logprobs, 0, limits.max_logprobs,
         "the same for the prompt's tokens")
      ->group(group);
  app->add_flag("--echo", flags->output.echo_prompt, "put the prompt in front of the text")->group(group);
}

absl::StatusOr<GenerateSpec> MakeSpec(const RequestFlags& flags, const RequestSettings& limits) {
  GenerateSpec spec;
  if (const absl::Status status = ReadPrompt(flags, &spec); !status.ok()) return status;
  spec.parse_special_tokens = flags.parse_special;

  spec.sampling = flags.sampling;
  spec.sampling.seed =
      flags.seed.has_value() ? *flags.seed : (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  absl::StatusOr<std::vector<std::pair<TokenId, float>>> biases = ParseLogitBias(flags.logit_bias);
  if (!biases.ok()) return biases.status();
  if (static_cast<std::int64_t>(biases->size()) > limits.max_logit_bias) {
    return absl::InvalidArgumentError("--logit-bias may be given " + std::to_string(limits.max_logit_bias) +
                                      " times at most");
  }
  spec.sampling.logit_bias = *std::move(biases);

  spec.stopping = flags.stopping;
  if (const absl::Status status = CheckStops(spec.stopping, limits); !status.ok()) return status;
  if (spec.stopping.max_output_tokens == 0) {
    spec.stopping.max_output_tokens = limits.default_output_tokens;
    spec.stopping.max_output_tokens_is_default = true;
  }
  spec.output = flags.output;
  return spec;
}

}  // namespace berth::cli
