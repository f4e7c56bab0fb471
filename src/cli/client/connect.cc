#include "cli/client/connect.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {

absl::Status WaitUntilConnected(grpc::Channel* channel, const std::string& address, Duration timeout,
                                const std::string& remedy) {
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return absl::UnavailableError(absl::StrCat("nothing listens at ", address, ": ", remedy));
    }
    if (!channel->WaitForStateChange(state, deadline)) {
      return absl::UnavailableError(absl::StrCat("no answer from ", address, " within ", ToSeconds(timeout), " s"));
    }
    state = channel->GetState(true);
  }
  return absl::OkStatus();
}

absl::Status FromGrpc(const grpc::Status& status) {
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

}  // namespace berth
