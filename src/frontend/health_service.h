// grpc.health.v1, with services that come and go, which gRPC's own does not have.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "frontend/health.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace berth {

// By service name: whether it serves.
using ServiceHealth = std::map<std::string, bool>;

// "", readiness, liveness, berth.v1.Inference, and berth.class.<name> for each class.
ServiceHealth ServicesOf(const Health& health);

// Thread-safe.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // What is true from now on. Watchers of what has changed are told; a service that is left out is known no more.
  void Publish(ServiceHealth services);

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;

  void Forget(Watcher* watcher);

  std::mutex mutex_;
  ServiceHealth services_;       // guarded by mutex_
  std::set<Watcher*> watchers_;  // guarded by mutex_
};

}  // namespace berth
