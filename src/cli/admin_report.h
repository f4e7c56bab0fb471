// What the operators' commands print.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "berth/v1/admin.pb.h"
#include "cli/outcome.h"
#include "cli/output.h"

namespace berth::cli {

// The server in a few lines, then a table of its classes, in parts where it is wider than `most_columns`.
std::string StatusText(const v1::ServerStatus& status, std::size_t most_columns = kAnyNumber);

// A table of requests, and how many are left out.
std::string RequestsText(const v1::ListRequestsResponse& list);

// "90061 s" as "1 d 1 h", two units at most.
std::string ShortTime(double seconds);

// A call that failed: what the caller said wrong, or a fault of this run.
inline Outcome AdminFault(const absl::Status& status) {
  const std::string message(status.message());
  return status.code() == absl::StatusCode::kInvalidArgument ? UsageError(message) : Fault(message);
}

// What a reload did or would do: findings on standard error, the changes on `out`. `name` stands for the judged file;
// `strict`: warnings are a fault too.
Outcome ReportReload(const v1::ReloadPolicyResponse& response, const std::string& name, bool strict, bool json,
                     Output& out);

}  // namespace berth::cli
