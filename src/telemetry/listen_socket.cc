#include "telemetry/listen_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace berth {
namespace {

constexpr int kBacklog = 128;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

std::optional<std::uint16_t> ParsePort(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  int port = 0;
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), is_digit) ||
      !absl::SimpleAtoi(std::string(text), &port) || port > 65535) {
    return std::nullopt;
  }
  return static_cast<std::uint16_t>(port);
}

template <typename Family>
SocketAddress Pack(const Family& family) {
  SocketAddress address{.storage = {}, .size = sizeof(family)};
  std::memcpy(&address.storage, &family, sizeof(family));
  return address;
}

std::optional<SocketAddress> Parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string host(text.substr(0, colon));
  const std::optional<std::uint16_t> port = ParsePort(text.substr(colon + 1));
  if (!port.has_value()) return std::nullopt;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(*port);
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
    return Pack(v6);
  }
  if (host == "localhost") host = "127.0.0.1";
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(*port);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) return std::nullopt;
  return Pack(v4);
}

std::string Print(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address.storage, sizeof(v6));
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
    return absl::StrCat("[", host, "]:", ntohs(v6.sin6_port));
  }
  sockaddr_in v4{};
  std::memcpy(&v4, &address.storage, sizeof(v4));
  inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
  return absl::StrCat(host, ":", ntohs(v4.sin_port));
}

// 0, or the error.
int BindAndListen(int fd, SocketAddress* address) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr* generic = static_cast<sockaddr*>(static_cast<void*>(&address->storage));
  if (bind(fd, generic, address->size) != 0 || listen(fd, kBacklog) != 0) return errno;
  return getsockname(fd, generic, &address->size) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<ListenSocket> Listen(const std::string& address) {
  std::optional<SocketAddress> parsed = Parse(address);
  if (!parsed.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", address,
        "' is no address to listen on: write HOST:PORT or [IPV6]:PORT, HOST an IPv4 address or localhost"));
  }
  const int fd = socket(parsed->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int error = fd < 0 ? errno : BindAndListen(fd, &*parsed);
  if (error != 0) {
    if (fd >= 0) close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on '", address, "': ", std::generic_category().message(error)));
  }
  return ListenSocket{.fd = fd, .address = Print(*parsed)};
}

}  // namespace berth
