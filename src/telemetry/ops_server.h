// The operators' port: /metrics, /livez and /readyz over plain HTTP/1.1, without TLS or credentials.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "berth/clock.h"

namespace berth {

struct HealthState {
  bool live = true;   // the process can still do something
  bool ready = true;  // new requests may be sent here
  std::string why;    // one line, where one of them is false
};

struct OpsOptions {
  std::string listen_address = "127.0.0.1:9090";  // HOST:PORT or [IPV6]:PORT; port 0 = any free port
  int max_connections = 256;                      // more wait to be accepted
  int max_connections_per_peer = 64;              // more of one IP address are closed at once
  // A connection serves one request and is closed, at the latest after so long.
  Duration client_timeout = std::chrono::seconds(10);
};

class OpsServer {
 public:
  // Listens and answers on one thread of its own, which calls `metrics_page` and `health`: both must be thread-safe,
  // quick, and callable until the server is gone. Fails with one line where the address is bad or in use.
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(const OpsOptions& options,
                                                          std::function<std::string()> metrics_page,
                                                          std::function<HealthState()> health);
  // Closes every connection.
  virtual ~OpsServer() = default;

  virtual std::string address() const = 0;  // with the port really bound
};

}  // namespace berth
