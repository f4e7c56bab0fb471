// The gRPC server: berth.v1.Inference, health and reflection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/certificate.h"
#include "berth/clock.h"
#include "berth/metrics.h"
#include "engine/engine.h"
#include "frontend/health.h"
#include "frontend/identity.h"
#include "model/model_config.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// Bounds on what a request may carry. The defaults it gets are its class's.
struct RequestLimits {
  std::int32_t max_stop_strings = 0;
  std::int32_t max_stop_string_bytes = 0;
  std::int32_t max_logit_bias = 0;
  std::int32_t max_logprobs = 0;
  std::int32_t max_request_id_bytes = 0;
};

// What GetModelInfo tells beside the tokenizer's own facts.
struct ServedModel {
  std::string name;  // what GenerateRequest.model must say, or be empty
  ModelConfig config;
  std::int32_t max_context_tokens = 0;
  KvPoolShape pool;
  KvDtype kv_dtype = KvDtype::kBf16;
};

// What one client may cost.
struct ConnectionLimits {
  std::int32_t max_message_bytes = 0;
  std::int32_t max_metadata_bytes = 0;  // of one call's headers
  std::int32_t max_streams = 0;         // open at once in one connection
  std::int64_t max_memory_bytes = 0;    // gRPC's, of all connections together
  std::optional<Duration> max_age;      // of a connection
};

struct FrontendOptions {
  std::string listen_address;  // "127.0.0.1:8433"; port 0 = any free port
  TlsPem tls;                  // without a certificate: no TLS
  ConnectionLimits connections;
  IdentityOptions identity;
  TenantDirectory::Listener on_tenants;  // may be null
  Duration write_timeout{};              // a stream whose oldest unread event is older is cancelled
  // How long the step in flight may take to end once the time of a drain is over.
  Duration last_step_time = std::chrono::seconds(10);
  RequestLimits limits;
  ServedModel model;
  // Never null; outlives the server, and knows the policy's names and RpcMethodNames().
  MetricSink* metrics = NoMetrics();
};

class GrpcServer {
 public:
  // Binds and serves. Fails with one line when the address is bad or in use. The pointers must outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const FrontendOptions& options, Engine* engine,
                                                           const Tokenizer* tokenizer, const Clock* clock);
  virtual ~GrpcServer() = default;  // as Shutdown with no grace

  virtual std::string address() const = 0;  // with the port really bound

  // What the server's health is judged by, here and elsewhere.
  virtual const HealthMonitor& health() const = 0;
  // For reloads, and for what shows names of tenants.
  virtual Callers* callers() = 0;
  // For handshakes from now on. Does nothing without TLS. REQUIRES: the key is the certificate's.
  virtual void SetTls(const TlsPem& tls) = 0;

  // Health says NOT_SERVING from now on; newcomers are taken still, so that load balancers have time to look away.
  virtual void StartDraining() = 0;

  // As StartDraining, and newcomers get DRAINING; what is queued or runs may finish for `timeout`, and then ends with
  // DRAIN_TIMEOUT; then everything is closed. False where a step of the backend did not end even then: neither
  // server nor engine can be destroyed, and what is left for the process is to exit as it is. Ends the engine's
  // intake (Engine::Shutdown).
  virtual bool Shutdown(Duration timeout) = 0;
};

}  // namespace berth
