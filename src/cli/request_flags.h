// The flags of a request, the same for `generate` and `client generate`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/request.h"
#include "cli/flags.h"
#include "config/server_config.h"

namespace berth::cli {

// What was given on the command line; what was left out keeps its default.
struct RequestFlags {
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::optional<std::string> prompt_ids;
  bool parse_special = false;

  SamplingSpec sampling;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=B"

  StoppingSpec stopping;
  OutputSpec output;
};

// `limits` bound the flags; the command line's default temperature is 0.
void AddRequestFlags(CLI::App* app, RequestFlags* flags, const RequestSettings& limits);

// The request the flags describe, its prompt read. A seed that was left out is drawn. `request_id`, `arrival` and
// `deadline` are the caller's to set. Ids are not compared with a vocabulary.
absl::StatusOr<GenerateSpec> MakeSpec(const RequestFlags& flags, const RequestSettings& limits);

}  // namespace berth::cli
