#include "frontend/loading_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "frontend/health_service.h"
#include "frontend/listen_address.h"
#include "frontend/refusal_status.h"
#include "frontend/tls_credentials.h"

namespace berth {
namespace {

Refusal ModelLoading() {
  Refusal refusal;
  refusal.reason = RefusalReason::kModelLoading;
  refusal.message = "the server is still loading its model: send the request again in a while, or to another server";
  refusal.retry_after = std::chrono::seconds(1);
  return refusal;
}

class Refusing final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusing(grpc::GenericCallbackServerContext* context) {
    const CallEnding ending = RefusedEnding(ModelLoading(), {});
    for (const auto& [key, value] : ending.trailers) context->AddTrailingMetadata(key, value);
    Finish(ending.status);
  }
  void OnDone() override { delete this; }
};

class RefusingService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Refusing(context);
  }
};

class LoadingServerImpl final : public LoadingServer {
 public:
  ~LoadingServerImpl() override {
    // Nothing of worth is open: watchers of health ask again.
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  absl::Status Serve(const std::string& listen_address, const TlsPem& tls) {
    if (absl::Status listen = CheckListenAddress(listen_address); !listen.ok()) return listen;
    health_.Publish(ServicesOf(Health()));
    int port = 0;
    grpc::ServerBuilder builder;
    tls_ = AddListeningPort(listen_address, tls, &port, &builder);
    builder.RegisterService(&health_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return BindFault(listen_address);
    address_ = WithPort(listen_address, port);
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  HealthService health_;
  RefusingService service_;
  std::shared_ptr<TlsCredentials> tls_;  // null = no TLS
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadingServer>> LoadingServer::Start(const std::string& listen_address,
                                                                    const TlsPem& tls) {
  auto server = std::make_unique<LoadingServerImpl>();
  if (absl::Status status = server->Serve(listen_address, tls); !status.ok()) return status;
  return std::unique_ptr<LoadingServer>(std::move(server));
}

}  // namespace berth
