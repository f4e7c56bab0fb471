#include "cli/client/admin_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "berth/v1/admin.grpc.pb.h"
#include "cli/client/call_status.h"

namespace berth {
namespace {

constexpr char kRemedy[] = "give the server's server.admin with --admin, or start 'berth serve' there";

}  // namespace

class AdminClient::Impl {
 public:
  explicit Impl(ConnectionOptions options)
      : options_(WithRemedy(std::move(options))),
        channel_(MakeChannel(options_)),
        stub_(v1::Admin::NewStub(channel_)) {}

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                        Response*),
                                const Request& request) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(ToSystemTime(std::chrono::steady_clock::now() + kAdminCallTimeout));
    Response response;
    if (absl::Status status = ToStatus((stub_.get()->*method)(&context, request, &response)); !status.ok()) {
      return status;
    }
    return response;
  }

  absl::Status Watch(Duration interval, const std::function<bool(const v1::ServerStatus&)>& on_status,
                     const std::stop_token& stop) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    v1::WatchStatusRequest request;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(interval);
    request.mutable_interval()->set_seconds(seconds.count());
    request.mutable_interval()->set_nanos(static_cast<std::int32_t>((interval - seconds).count()));
    grpc::ClientContext context;
    Prepare(&context);
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    const auto reader = stub_->WatchStatus(&context, request);
    v1::ServerStatus status;
    while (reader->Read(&status)) {
      if (on_status(status)) continue;
      context.TryCancel();
      break;
    }
    return ToStatus(reader->Finish());
  }

 private:
  static ConnectionOptions WithRemedy(ConnectionOptions options) {
    options.remedy = kRemedy;
    return options;
  }
  absl::Status Connect() { return WaitUntilConnected(options_, kNoDeadline, channel_.get()); }
  void Prepare(grpc::ClientContext* context) const {
    for (const auto& [key, value] : options_.metadata) context->AddMetadata(key, value);
  }

  const ConnectionOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
};

AdminClient::AdminClient(ConnectionOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
AdminClient::~AdminClient() = default;

absl::StatusOr<v1::ServerStatus> AdminClient::GetStatus() {
  return impl_->Call(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest());
}
absl::Status AdminClient::Watch(Duration interval, const std::function<bool(const v1::ServerStatus&)>& on_status,
                                const std::stop_token& stop) {
  return impl_->Watch(interval, on_status, stop);
}
absl::StatusOr<v1::ListRequestsResponse> AdminClient::ListRequests(const v1::ListRequestsRequest& request) {
  return impl_->Call(&v1::Admin::Stub::ListRequests, request);
}
absl::Status AdminClient::CancelRequest(const v1::CancelRequestRequest& request) {
  return impl_->Call(&v1::Admin::Stub::CancelRequest, request).status();
}
absl::StatusOr<v1::ReloadPolicyResponse> AdminClient::ReloadPolicy(const v1::ReloadPolicyRequest& request) {
  return impl_->Call(&v1::Admin::Stub::ReloadPolicy, request);
}
absl::Status AdminClient::Drain(const v1::DrainRequest& request) {
  return impl_->Call(&v1::Admin::Stub::Drain, request).status();
}
absl::StatusOr<v1::GetUsageResponse> AdminClient::GetUsage(const v1::GetUsageRequest& request) {
  return impl_->Call(&v1::Admin::Stub::GetUsage, request);
}

}  // namespace berth
