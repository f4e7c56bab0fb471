#include "cli/client/call_status.h"

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      if (detail.UnpackTo(&info)) message += " (" + info.reason() + ")";
    }
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

std::chrono::system_clock::time_point ToSystemTime(TimePoint time) {
  using System = std::chrono::system_clock;
  if (time == kNoDeadline) return System::time_point::max();
  return System::now() + std::chrono::duration_cast<System::duration>(time - std::chrono::steady_clock::now());
}

}  // namespace berth
