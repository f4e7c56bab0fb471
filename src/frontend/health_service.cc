#include "frontend/health_service.h"

#include <utility>
#include <vector>

#include "berth/v1/inference.grpc.pb.h"
#include "frontend/latest_writer.h"

namespace berth {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

using Status = HealthCheckResponse::ServingStatus;

Status StatusOf(const ServiceHealth& services, const std::string& name) {
  const auto found = services.find(name);
  if (found == services.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return found->second ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

}  // namespace

ServiceHealth ServicesOf(const Health& health) {
  ServiceHealth services = {
      {"", health.ready()},
      {"readiness", health.ready()},
      {v1::Inference::service_full_name(), health.ready()},
      {"liveness", health.live},
  };
  for (const ClassHealth& c : health.classes) services["berth.class." + c.name] = c.serving;
  return services;
}

class HealthService::Watcher final : public LatestWriter<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, std::string name) : service_(service), name_(std::move(name)) {}

  // The service's lock is held. As Prepare; nothing where the status is what was told last.
  bool PrepareLocked(const ServiceHealth& services) {
    const Status status = StatusOf(services, name_);
    if (std::exchange(told_, status) == status) return false;
    HealthCheckResponse message;
    message.set_status(status);
    return Prepare(std::move(message));
  }
  void OnDone() override {
    service_->Forget(this);
    delete this;
  }

 private:
  HealthService* const service_;
  const std::string name_;
  Status told_ = HealthCheckResponse::UNKNOWN;  // guarded by the service's lock
};

void HealthService::Publish(ServiceHealth services) {
  std::vector<Watcher*> to_write;
  {
    const std::lock_guard lock(mutex_);
    if (services == services_) return;
    services_ = std::move(services);
    for (Watcher* watcher : watchers_) {
      if (watcher->PrepareLocked(services_)) to_write.push_back(watcher);
    }
  }
  for (Watcher* watcher : to_write) watcher->Write();
}

void HealthService::Forget(Watcher* watcher) {
  const std::lock_guard lock(mutex_);
  watchers_.erase(watcher);
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context, const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  Status status = HealthCheckResponse::UNKNOWN;
  {
    const std::lock_guard lock(mutex_);
    status = StatusOf(services_, request->service());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND,
                     "no service of that name: ask for \"\", readiness, liveness, berth.v1.Inference or "
                     "berth.class.<name>"});
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext*,
                                                                    const HealthCheckRequest* request) {
  auto* watcher = new Watcher(this, request->service());
  bool write = false;
  {
    const std::lock_guard lock(mutex_);
    watchers_.insert(watcher);
    write = watcher->PrepareLocked(services_);
  }
  if (write) watcher->Write();
  return watcher;
}

}  // namespace berth
