// How a command reaches a server: address, credentials, metadata.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "berth/clock.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace berth {

// PEM texts. Without roots the system's are trusted; certificate and key come together, for mTLS.
struct ClientTls {
  std::string roots;
  std::string certificate;
  std::string key;
};

struct ConnectionOptions {
  std::string address;                                        // "127.0.0.1:8433" or "unix:/path"
  std::optional<ClientTls> tls;                               // absent = plain text
  std::vector<std::pair<std::string, std::string>> metadata;  // of every call
  // What an error says to do where nothing listens.
  std::string remedy = "start 'berth serve' there, give the address it printed, or --tls-ca if it speaks TLS";
  // How long a server may take to answer the connection. A port where nothing listens is told at once.
  Duration connect_timeout = std::chrono::seconds(5);
};

// Connects at its first use.
std::shared_ptr<grpc::Channel> MakeChannel(const ConnectionOptions& options);

// Ok once the channel is connected; Unavailable, naming the address, where nobody answers there by `deadline` or
// within connect_timeout.
absl::Status WaitUntilConnected(const ConnectionOptions& options, TimePoint deadline, grpc::Channel* channel);

// Whether grpc.health.v1 calls the service SERVING; "" is the whole server. An unknown service is NotFound.
absl::Status CheckServing(const ConnectionOptions& options, const std::string& service, Duration timeout,
                          bool* serving);

}  // namespace berth
