#include "frontend/admin_service.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "frontend/admin_status.h"
#include "frontend/encode.h"
#include "frontend/latest_writer.h"
#include "frontend/refusal_status.h"

namespace berth {
namespace {

using RealTime = std::chrono::steady_clock;

constexpr std::size_t kMaxWaitingJobs = 64;
constexpr std::int32_t kMaxListed = 1000;
// The engine's thread answers in microseconds, or it is stuck.
constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kDefaultInterval = std::chrono::seconds(1);
constexpr Duration kLeastInterval = std::chrono::milliseconds(100);
constexpr Duration kLongestInterval = std::chrono::minutes(1);

// The codes are the same, number by number.
grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

grpc::Status Invalid(const std::string& message) { return {grpc::StatusCode::INVALID_ARGUMENT, message}; }

std::optional<ClassId> FindClass(const Policy& policy, const std::string& name) {
  for (ClassId c = 0; c < std::ssize(policy.classes); ++c) {
    const ClassPolicy& service_class = policy.classes[static_cast<std::size_t>(c)];
    if (service_class.name == name && !service_class.removed) return c;
  }
  return std::nullopt;
}

// Nothing where it is out of range.
std::optional<Duration> IntervalOf(const v1::WatchStatusRequest& request) {
  if (!request.has_interval()) return kDefaultInterval;
  const google::protobuf::Duration& asked = request.interval();
  if (asked.seconds() < 0 || asked.seconds() > 60 || asked.nanos() < 0) return std::nullopt;
  const Duration interval = std::chrono::seconds(asked.seconds()) + std::chrono::nanoseconds(asked.nanos());
  if (interval < kLeastInterval || interval > kLongestInterval) return std::nullopt;
  return interval;
}

void Refuse(const Refusal& refusal, grpc::CallbackServerContext* context, grpc::Status* status) {
  CallEnding ending = RefusedEnding(refusal, {});
  for (const auto& [key, value] : ending.trailers) context->AddTrailingMetadata(key, value);
  *status = std::move(ending.status);
}

}  // namespace

// `next` and the set it is in are the service's, under its lock.
class AdminService::StatusWatcher final : public LatestWriter<v1::ServerStatus> {
 public:
  StatusWatcher(AdminService* service, Duration period) : interval(period), service_(service) {}

  void OnDone() override {
    service_->Forget(this);
    delete this;
  }

  const Duration interval;
  RealTime::time_point next = RealTime::now();

 private:
  AdminService* const service_;
};

AdminService::AdminService(const AdminOptions& options, Engine* engine, const Clock* clock, const HealthMonitor* health,
                           AdminHooks hooks, AdminGate gate)
    : options_(options),
      engine_(engine),
      clock_(clock),
      start_(clock->Now()),
      health_(health),
      hooks_(std::move(hooks)),
      gate_(std::move(gate)),
      worker_(/*num_threads=*/1, kMaxWaitingJobs, "admin"),
      ticker_([this] { KeepWatchersUpToDate(); }) {}

AdminService::~AdminService() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  ticker_.join();
}

v1::ServerStatus AdminService::Status() const {
  const std::shared_ptr<const Policy> policy = engine_->policy();
  const LoadSnapshot load = engine_->load();
  const TimePoint now = clock_->Now();
  v1::ServerStatus status;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wall);
  status.mutable_time()->set_seconds(seconds.count());
  status.mutable_time()->set_nanos(
      static_cast<std::int32_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(wall - seconds).count()));
  EncodeHealth(health_->Now(), &status);
  status.set_version(options_.version);
  status.set_model(options_.model_name);
  status.set_backend(options_.backend);
  EncodeDuration(now - start_, status.mutable_uptime());
  status.set_policy_sha256(hooks_.policy_sha256());
  EncodeLoad(load, *policy, now, &status);
  status.set_block_tokens(options_.block_tokens);
  status.set_kv_bytes(options_.kv_bytes);
  for (v1::ClassStatus& c : *status.mutable_classes()) {
    if (const std::optional<ClassId> id = FindClass(*policy, c.name())) hooks_.add_slos(*id, &c);
  }
  return status;
}

template <typename Handle>
grpc::ServerUnaryReactor* AdminService::Run(grpc::CallbackServerContext* context, Handle handle) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  grpc::Status status;
  if (const std::optional<Refusal> refusal = gate_(*context)) {
    Refuse(*refusal, context, &status);
  } else {
    status = handle();
  }
  reactor->Finish(status);
  return reactor;
}

template <typename Handle>
grpc::ServerUnaryReactor* AdminService::RunOnWorker(grpc::CallbackServerContext* context, Handle handle) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (const std::optional<Refusal> refusal = gate_(*context)) {
    grpc::Status status;
    Refuse(*refusal, context, &status);
    reactor->Finish(status);
  } else if (!worker_.TryPost([reactor, handle = std::move(handle)] { reactor->Finish(handle()); })) {
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many admin calls wait: come back later"});
  }
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
                                                  v1::ServerStatus* response) {
  return Run(context, [&] {
    *response = Status();
    return grpc::Status::OK;
  });
}

grpc::ServerWriteReactor<v1::ServerStatus>* AdminService::WatchStatus(grpc::CallbackServerContext* context,
                                                                      const v1::WatchStatusRequest* request) {
  const std::optional<Duration> interval = IntervalOf(*request);
  auto* watcher = new StatusWatcher(this, interval.value_or(kDefaultInterval));
  grpc::Status status;
  if (const std::optional<Refusal> refusal = gate_(*context)) {
    Refuse(*refusal, context, &status);
  } else if (!interval.has_value()) {
    status = Invalid("interval must be from 100 ms to 60 s");
  }
  if (!status.ok()) {
    watcher->End(status);
    return watcher;
  }
  {
    const std::lock_guard lock(mutex_);
    watchers_.insert(watcher);
  }
  wake_.notify_all();
  return watcher;
}

void AdminService::Forget(StatusWatcher* watcher) {
  const std::lock_guard lock(mutex_);
  watchers_.erase(watcher);
}

void AdminService::KeepWatchersUpToDate() {
  pthread_setname_np(pthread_self(), "admin-watch");
  std::vector<StatusWatcher*> to_write;
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const RealTime::time_point now = RealTime::now();
    RealTime::time_point next = now + kLongestInterval;
    std::optional<v1::ServerStatus> status;
    for (StatusWatcher* watcher : watchers_) {
      if (watcher->next <= now) {
        if (!status.has_value()) status = Status();
        watcher->next = now + watcher->interval;
        if (watcher->Prepare(*status)) to_write.push_back(watcher);
      }
      next = std::min(next, watcher->next);
    }
    if (!to_write.empty()) {
      lock.unlock();
      for (StatusWatcher* watcher : to_write) watcher->Write();
      to_write.clear();
      lock.lock();
    } else if (!stopped_) {
      wake_.wait_until(lock, next);
    }
  }
}

grpc::ServerUnaryReactor* AdminService::ListRequests(grpc::CallbackServerContext* context,
                                                     const v1::ListRequestsRequest* request,
                                                     v1::ListRequestsResponse* response) {
  return RunOnWorker(context, [this, request, response] { return List(*request, response); });
}

grpc::Status AdminService::List(const v1::ListRequestsRequest& request, v1::ListRequestsResponse* response) const {
  const std::shared_ptr<const Policy> policy = engine_->policy();
  LiveFilter filter;
  if (!request.service_class().empty()) {
    filter.service_class = FindClass(*policy, request.service_class());
    if (!filter.service_class.has_value()) {
      return Invalid("service_class: there is no class '" + request.service_class() + "'");
    }
  }
  const std::int32_t most = request.has_max_requests() ? request.max_requests() : kMaxListed;
  if (most < 0 || most > kMaxListed) return Invalid(absl::StrCat("max_requests must be from 0 to ", kMaxListed));
  if (!request.tenant().empty()) {
    filter.tenant = hooks_.find_tenant(request.tenant());
    if (!filter.tenant.has_value()) return grpc::Status::OK;  // nobody of that name has ever come
  }
  const std::optional<LiveList> list = engine_->ListLive(filter, static_cast<std::size_t>(most), kPatience);
  if (!list.has_value()) {
    return {grpc::StatusCode::UNAVAILABLE, "the engine's thread does not answer: it is stuck, or still starting"};
  }
  // The list may be newer than the policy was: a class of it that came meanwhile is named all the same.
  const std::shared_ptr<const Policy> names = engine_->policy();
  for (const LiveRow& row : list->rows) {
    EncodeLiveRow(row, *names, hooks_.tenant_name(row.ticket.tenant), response->add_requests());
  }
  response->set_left_out(list->left_out);
  return grpc::Status::OK;
}

grpc::ServerUnaryReactor* AdminService::CancelRequest(grpc::CallbackServerContext* context,
                                                      const v1::CancelRequestRequest* request,
                                                      v1::CancelRequestResponse*) {
  return Run(context, [&] { return Cancel(*request); });
}

grpc::Status AdminService::Cancel(const v1::CancelRequestRequest& request) const {
  if (request.request_id().empty()) return Invalid("request_id: name the request to end");
  const std::optional<TenantId> tenant = hooks_.find_tenant(request.tenant());
  const std::optional<TicketNumber> ticket =
      tenant.has_value() ? engine_->Find(*tenant, request.request_id()) : std::nullopt;
  if (!ticket.has_value()) {
    const std::string& name = request.tenant();
    return {grpc::StatusCode::NOT_FOUND,
            absl::StrCat("no request '", request.request_id(), "' of ",
                         name.empty() ? std::string("the default tenant") : absl::StrCat("tenant '", name, "'"),
                         " lives: it has ended, or is another tenant's; list them")};
  }
  engine_->Cancel(*ticket, RefusalReason::kCancelledByOperator);
  return grpc::Status::OK;
}

grpc::ServerUnaryReactor* AdminService::ReloadPolicy(grpc::CallbackServerContext* context,
                                                     const v1::ReloadPolicyRequest* request,
                                                     v1::ReloadPolicyResponse* response) {
  return RunOnWorker(context, [this, request, response] { return ToGrpc(hooks_.reload(*request, response)); });
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                              v1::DrainResponse*) {
  return RunOnWorker(context, [this, request] {
    if (!request->service_class().empty()) return ToGrpc(hooks_.drain_class(request->service_class()));
    hooks_.drain();
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* AdminService::GetUsage(grpc::CallbackServerContext* context,
                                                 const v1::GetUsageRequest* request, v1::GetUsageResponse* response) {
  return RunOnWorker(context, [this, request, response] { return ToGrpc(hooks_.usage(*request, response)); });
}

}  // namespace berth
