// What stands on the clients' port while the model loads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/certificate.h"

namespace berth {

// Answers every call of any service with UNAVAILABLE / MODEL_LOADING, but for grpc.health.v1, which says NOT_SERVING
// (liveness: SERVING). To be destroyed before the server that takes its place is started at the same address.
class LoadingServer {
 public:
  // Binds and serves. Fails with one line where the address is bad or in use. `tls` without a certificate: no TLS.
  static absl::StatusOr<std::unique_ptr<LoadingServer>> Start(const std::string& listen_address, const TlsPem& tls);
  virtual ~LoadingServer() = default;

  virtual std::string address() const = 0;  // with the port really bound
};

}  // namespace berth
