#include "frontend/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "frontend/call_registry.h"
#include "frontend/codec.h"
#include "frontend/health_service.h"
#include "frontend/inference_service.h"
#include "frontend/listen_address.h"
#include "frontend/load_report.h"
#include "frontend/load_report_service.h"
#include "frontend/submission.h"
#include "frontend/tls_credentials.h"
#include "frontend/tokenizer_pool.h"

namespace berth {
namespace {

constexpr int kTokenizerThreads = 2;
constexpr std::size_t kMaxWaitingLookups = 64;

// A peer that vanished is noticed within half a minute or so; one that pings more often than this is told to calm down.
constexpr int kKeepaliveTimeMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kMinClientPingIntervalMs = 10'000;
// A connection that does not speak HTTP/2 by then is closed.
constexpr int kHandshakeTimeoutMs = 20'000;

// How long the last messages may take to leave after everything has ended.
constexpr Duration kFlushTime = std::chrono::seconds(1);
constexpr auto kCloseTime = std::chrono::milliseconds(200);
constexpr Duration kHousekeepingInterval = std::chrono::milliseconds(100);

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(const FrontendOptions& options, Engine* engine, const Tokenizer* tokenizer, const Clock* clock)
      : options_(options),
        engine_(engine),
        clock_(clock),
        codec_(options.limits, options.model.name, options.model.max_context_tokens, tokenizer),
        pool_(kTokenizerThreads, kMaxWaitingLookups),
        callers_(options.identity, *engine->policy(), options.on_tenants),
        health_(engine, clock),
        service_({engine, tokenizer, clock, &codec_, &pool_, &callers_, options.metrics}, options, &registry_),
        load_reports_([engine] { return engine->load(); }) {}

  ~GrpcServerImpl() override {
    if (server_ != nullptr) Shutdown(Duration::zero());
  }

  absl::Status Serve() {
    if (absl::Status listen = CheckListenAddress(options_.listen_address); !listen.ok()) return listen;
    // Protobuf would log every string that is not UTF-8: a client could fill the log. It gets a refusal instead.
    google::protobuf::SetLogHandler(nullptr);
    // Debian builds Abseil for developers: at each of gRPC's locks it looks for a cycle in the order in which locks
    // were ever taken, under one lock of its own, and ends the process where it finds one.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    int port = 0;
    grpc::ServerBuilder builder;
    tls_ = AddListeningPort(options_.listen_address, options_.tls, &port, &builder);
    builder.RegisterService(&service_);
    builder.RegisterService(&health_service_);
    builder.RegisterService(&load_reports_);
    PublishHealth();
    Limit(options_.connections, &builder);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinClientPingIntervalMs);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return BindFault(options_.listen_address);
    address_ = WithPort(options_.listen_address, port);
    housekeeper_ = std::thread([this] { KeepHouse(); });
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  Callers* callers() override { return &callers_; }
  void SetTls(const TlsPem& tls) override {
    if (tls_ != nullptr) tls_->Set(tls);
  }

  const HealthMonitor& health() const override { return health_; }

  void StartDraining() override {
    health_.SetDraining();
    PublishHealth();
  }

  bool Shutdown(Duration timeout) override {
    const std::lock_guard once(shutdown_mutex_);
    if (shut_down_) return *shut_down_;
    const TimePoint end = std::chrono::steady_clock::now() + timeout;
    StartDraining();
    service_.Drain();
    shut_down_ = engine_->Shutdown(timeout, options_.last_step_time);
    if (!*shut_down_) return false;
    // Every job that was posted ends its call; later ones are refused.
    pool_.Stop();
    // The housekeeper still ends those that do not read.
    registry_.WaitUntilEmpty(std::max<Duration>(end - std::chrono::steady_clock::now(), kFlushTime));
    // Closes what is left, such as those who watch the health.
    server_->Shutdown(std::chrono::system_clock::now() + kCloseTime);
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake_.notify_all();
    housekeeper_.join();
    return true;
  }

 private:
  static void Limit(const ConnectionLimits& limits, grpc::ServerBuilder* builder) {
    builder->SetMaxReceiveMessageSize(limits.max_message_bytes);
    builder->SetResourceQuota(grpc::ResourceQuota("berth").Resize(static_cast<std::size_t>(limits.max_memory_bytes)));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams);
    builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
    // gRPC itself spreads the ages by a tenth, so that not all connect anew at once.
    if (limits.max_age) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(*limits.max_age).count();
      builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(ms));
    }
  }

  // One after the other: what is older is never published later.
  void PublishHealth() {
    const std::lock_guard lock(publish_mutex_);
    health_service_.Publish(ServicesOf(health_.Now()));
  }

  void KeepHouse() {
    pthread_setname_np(pthread_self(), "housekeeper");
    std::unique_lock lock(mutex_);
    while (!closed_) {
      wake_.wait_for(lock, std::min<Duration>(kHousekeepingInterval, options_.write_timeout / 4));
      lock.unlock();
      PublishHealth();
      registry_.AbortStuck(clock_->Now(), options_.write_timeout);
      lock.lock();
    }
  }

  const FrontendOptions options_;
  Engine* const engine_;
  const Clock* const clock_;
  const Codec codec_;
  TokenizerPool pool_;
  CallRegistry registry_;
  Callers callers_;
  HealthMonitor health_;
  HealthService health_service_;
  InferenceService service_;
  LoadReportService load_reports_;
  std::shared_ptr<TlsCredentials> tls_;  // null = no TLS
  std::unique_ptr<grpc::Server> server_;
  std::string address_;

  std::mutex publish_mutex_;

  std::mutex shutdown_mutex_;      // held through Shutdown: a second caller waits for the first
  std::optional<bool> shut_down_;  // what Shutdown came to; guarded by shutdown_mutex_

  std::mutex mutex_;
  std::condition_variable wake_;
  bool closed_ = false;  // guarded by mutex_
  std::thread housekeeper_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const FrontendOptions& options, Engine* engine,
                                                              const Tokenizer* tokenizer, const Clock* clock) {
  auto server = std::make_unique<GrpcServerImpl>(options, engine, tokenizer, clock);
  if (absl::Status status = server->Serve(); !status.ok()) return status;
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace berth
