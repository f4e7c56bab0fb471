#include "cli/client/admin_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "berth/v1/admin.grpc.pb.h"
#include "cli/client/connect.h"

namespace berth {
namespace {

constexpr char kRemedy[] = "give the server's server.admin with --admin, or start 'berth serve' there";

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const AdminClientOptions& options) {
  if (options.root_certificates.empty() && options.certificate.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.root_certificates;
  ssl.pem_cert_chain = options.certificate;
  ssl.pem_private_key = options.private_key;
  return grpc::SslCredentials(ssl);
}

}  // namespace

class AdminClient::Impl {
 public:
  explicit Impl(AdminClientOptions options)
      : options_(std::move(options)),
        channel_(grpc::CreateChannel(options_.address, CredentialsOf(options_))),
        stub_(v1::Admin::NewStub(channel_)) {}

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                        Response*),
                                const Request& request) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(options_.call_timeout));
    Response response;
    if (absl::Status status = FromGrpc((stub_.get()->*method)(&context, request, &response)); !status.ok()) {
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
    return FromGrpc(reader->Finish());
  }

 private:
  absl::Status Connect() {
    return WaitUntilConnected(channel_.get(), options_.address, options_.connect_timeout, kRemedy);
  }
  void Prepare(grpc::ClientContext* context) const {
    if (!options_.api_key.empty()) context->AddMetadata("authorization", "Bearer " + options_.api_key);
  }

  const AdminClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
};

AdminClient::AdminClient(AdminClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
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
