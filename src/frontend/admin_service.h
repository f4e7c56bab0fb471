// berth.v1.Admin on gRPC's callback API.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "berth/admission.h"
#include "berth/v1/admin.grpc.pb.h"
#include "frontend/admin_hooks.h"
#include "frontend/admin_server.h"
#include "frontend/health.h"
#include "frontend/tokenizer_pool.h"

namespace berth {

// Says why a caller may not; nothing where it may.
using AdminGate = std::function<std::optional<Refusal>(const grpc::CallbackServerContext& context)>;

// Thread-safe. Handlers run on gRPC's threads and never block: what takes time runs on a thread of the service's own.
class AdminService final : public v1::Admin::CallbackService {
 public:
  // The pointers must outlive the service.
  AdminService(const AdminOptions& options, Engine* engine, const Clock* clock, const HealthMonitor* health,
               AdminHooks hooks, AdminGate gate);
  // Every stream must have ended.
  ~AdminService() override;

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::ServerStatus* response) override;
  grpc::ServerWriteReactor<v1::ServerStatus>* WatchStatus(grpc::CallbackServerContext* context,
                                                          const v1::WatchStatusRequest* request) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context, const v1::ListRequestsRequest* request,
                                         v1::ListRequestsResponse* response) override;
  grpc::ServerUnaryReactor* CancelRequest(grpc::CallbackServerContext* context, const v1::CancelRequestRequest* request,
                                          v1::CancelRequestResponse* response) override;
  grpc::ServerUnaryReactor* ReloadPolicy(grpc::CallbackServerContext* context, const v1::ReloadPolicyRequest* request,
                                         v1::ReloadPolicyResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* context, const v1::GetUsageRequest* request,
                                     v1::GetUsageResponse* response) override;

 private:
  class StatusWatcher;

  v1::ServerStatus Status() const;
  grpc::Status List(const v1::ListRequestsRequest& request, v1::ListRequestsResponse* response) const;
  grpc::Status Cancel(const v1::CancelRequestRequest& request) const;
  // Ends the call with what `handle() -> grpc::Status` says, now or on the service's thread; or with the gate's
  // refusal.
  template <typename Handle>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, Handle handle);
  template <typename Handle>
  grpc::ServerUnaryReactor* RunOnWorker(grpc::CallbackServerContext* context, Handle handle);
  void Forget(StatusWatcher* watcher);
  void KeepWatchersUpToDate();

  const AdminOptions options_;
  Engine* const engine_;
  const Clock* const clock_;
  const TimePoint start_;
  const HealthMonitor* const health_;
  const AdminHooks hooks_;
  const AdminGate gate_;
  TokenizerPool worker_;

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_:
  std::set<StatusWatcher*> watchers_;
  bool stopped_ = false;
  std::thread ticker_;  // last: it uses everything above
};

}  // namespace berth
