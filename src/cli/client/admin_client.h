// A client of berth.v1.Admin: what the operators' commands use.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "berth/clock.h"
#include "berth/v1/admin.pb.h"
#include "cli/client/connection.h"

namespace berth {

inline constexpr Duration kAdminCallTimeout = std::chrono::seconds(30);  // of all calls but Watch

// Not thread-safe. Errors are one line with the server's gRPC code; Unavailable where nobody answers.
class AdminClient {
 public:
  // Connects at the first call.
  explicit AdminClient(ConnectionOptions options);
  ~AdminClient();

  absl::StatusOr<v1::ServerStatus> GetStatus();
  // Calls `on_status` with each status as it comes; until that returns false, a stop is requested from any thread, or
  // the server ends.
  absl::Status Watch(Duration interval, const std::function<bool(const v1::ServerStatus&)>& on_status,
                     const std::stop_token& stop);
  absl::StatusOr<v1::ListRequestsResponse> ListRequests(const v1::ListRequestsRequest& request);
  absl::Status CancelRequest(const v1::CancelRequestRequest& request);
  absl::StatusOr<v1::ReloadPolicyResponse> ReloadPolicy(const v1::ReloadPolicyRequest& request);
  absl::Status Drain(const v1::DrainRequest& request);
  absl::StatusOr<v1::GetUsageResponse> GetUsage(const v1::GetUsageRequest& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace berth
