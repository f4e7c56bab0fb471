// How a command ended. Exit codes: 0 success; 1 a fault at run time (server unreachable, refused by the server,
// device); 2 something the caller has to change (arguments, files, input); 128 + n ended by signal n.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "berth/admission.h"

namespace berth::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFault = 1;
inline constexpr int kExitUsage = 2;

struct Outcome {
  int exit_code = kExitOk;
  std::string error;  // one line for standard error; empty = nothing to say

  bool ok() const { return exit_code == kExitOk && error.empty(); }
};

inline Outcome UsageError(std::string message) { return {kExitUsage, std::move(message)}; }
inline Outcome Fault(std::string message) { return {kExitFault, std::move(message)}; }

// What a module said about a file, a flag or the device.
inline Outcome FromStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return {};
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:
      return UsageError(std::string(status.message()));
    default:
      return Fault(std::string(status.message()));
  }
}

// Messages about a request name its fields as the API does; here they are flags.
inline std::string InFlagNames(std::string message) {
  constexpr std::string_view kField = "stopping.max_output_tokens";
  for (std::size_t at; (at = message.find(kField)) != std::string::npos;)
    message.replace(at, kField.size(), "--max-tokens");
  return message;
}

// What the engine in this process answered: a request that can never run is the caller's to change.
inline Outcome FromRefusal(const Refusal& refusal) {
  switch (refusal.reason) {
    case RefusalReason::kInvalidRequest:
    case RefusalReason::kUnimplemented:
    case RefusalReason::kModelNotFound:
    case RefusalReason::kRequestTooLarge:
      return UsageError(InFlagNames(refusal.message));
    default:
      return Fault(refusal.message);
  }
}

}  // namespace berth::cli
