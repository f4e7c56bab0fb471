// What a policy comes to in blocks and requests: for `berth check`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/policy.h"
#include "cli/output.h"
#include "config/resolve_policy.h"
#include "config/server_config.h"

namespace berth::cli {

// Requests of one length, one sequence each.
struct RequestsAtOnce {
  std::int64_t tokens = 0;  // prompt + output
  std::int64_t blocks = 0;  // reserved by each
  std::int64_t always = 0;  // run whatever other classes do
  std::int64_t at_most = 0;
};

struct ClassReport {
  std::int64_t reach_blocks = 0;  // of one request, and of all of the class together
  std::int64_t reach_slots = 0;
  RequestsAtOnce typical;
  std::optional<RequestsAtOnce> longest;  // absent where neither class nor context bounds it
  std::string first_limit;                // that typical requests run into
};

// `typical_prompt_tokens` of prompt and the class's default output make a typical request, cut to what the class takes.
std::vector<ClassReport> ReportClasses(const Policy& policy, const PolicyContext& context,
                                       std::int64_t typical_prompt_tokens);

Json PolicyJson(const Policy& policy, const PolicyContext& context, const std::vector<ClassReport>& classes);
std::string PolicyTables(const ServerConfig& config, const Policy& policy, const PolicyContext& context,
                         const std::vector<ClassReport>& classes);

}  // namespace berth::cli
