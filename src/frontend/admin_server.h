// The operators' gRPC server, apart from the one for clients: berth.v1.Admin and reflection, nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/certificate.h"
#include "berth/clock.h"
#include "engine/engine.h"
#include "frontend/admin_hooks.h"
#include "frontend/health.h"
#include "frontend/identity.h"

namespace berth {

struct AdminOptions {
  // "unix:PATH", whose file only its owner may open, or HOST:PORT.
  std::string listen_address;
  TlsPem tls;  // for TCP; without a certificate: no TLS
  // Over TCP: who may call. Outlives the server.
  Callers* callers = nullptr;
  // What GetStatus tells.
  std::string model_name;
  std::string version;
  std::string backend;
  std::int32_t block_tokens = 0;
  std::int64_t kv_bytes = 0;
};

class AdminServer {
 public:
  // Binds and serves. Fails with one line where the address is bad or in use. A socket's file that nobody listens to
  // any more is replaced. The pointers must outlive the server.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const AdminOptions& options, Engine* engine,
                                                            const Clock* clock, const HealthMonitor* health,
                                                            AdminHooks hooks);
  // Ends what is open and removes the socket's file.
  virtual ~AdminServer() = default;

  virtual std::string address() const = 0;  // with the port really bound
  // As GrpcServer's.
  virtual void SetTls(const TlsPem& tls) = 0;
};

}  // namespace berth
