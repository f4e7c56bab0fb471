#include "frontend/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

namespace berth {
namespace {

constexpr char kUnixPrefix[] = "unix:";

class Socket {
 public:
  explicit Socket(int family) : fd_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::FailedPreconditionError("cannot listen on " + address + ": " + why);
}

absl::Status BadAddress(const std::string& address) {
  return absl::InvalidArgumentError("'" + address +
                                    "' is no address to listen on: give HOST:PORT, [IPV6]:PORT or unix:PATH");
}

struct HostPort {
  std::string host;
  std::string port;
};

std::optional<HostPort> Split(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort out{address.substr(0, colon), address.substr(colon + 1)};
  if (out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find(':') != std::string::npos) {
    return std::nullopt;
  }
  const bool digits = !out.port.empty() && out.port.size() <= 5 &&
                      std::all_of(out.port.begin(), out.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (out.host.empty() || !digits || std::stoi(out.port) > 65535) return std::nullopt;
  return out;
}

absl::Status CheckTcp(const std::string& address) {
  const std::optional<HostPort> parts = Split(address);
  if (!parts) return BadAddress(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found); error != 0) {
    return CannotListen(address, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  // One address that can be bound is enough, as for gRPC; but none may be in use, or clients would reach either server.
  int last_error = 0;
  bool bound = false;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const Socket socket(entry->ai_family);
    const int on = 1;
    if (socket.fd() < 0 || ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        ::bind(socket.fd(), entry->ai_addr, entry->ai_addrlen) != 0) {
      last_error = errno;
      if (last_error == EADDRINUSE) break;
      continue;
    }
    bound = true;
  }
  if (last_error == EADDRINUSE) {
    return CannotListen(address,
                        "the port is in use; stop the other process or choose another port (0 = any free one)");
  }
  return bound ? absl::OkStatus() : CannotListen(address, std::strerror(last_error));
}

absl::Status CheckUnix(const std::string& address) {
  const std::string path = address.substr(std::strlen(kUnixPrefix));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty()) return BadAddress(address);
  if (path.size() >= sizeof(name.sun_path)) {
    return CannotListen(address, "the path is longer than " + std::to_string(sizeof(name.sun_path) - 1) + " bytes");
  }
  // What was looked at here would not be what gRPC binds, or clients would not get there.
  if (path.find_first_of("%?#") != std::string::npos) {
    return CannotListen(address, "gRPC reads '%', '?' and '#' in it as parts of a URI; choose a path without them");
  }
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  const auto* const raw = reinterpret_cast<const sockaddr*>(&name);
  {
    // gRPC takes a socket's path over without asking who serves it.
    const Socket socket(AF_UNIX);
    if (::connect(socket.fd(), raw, sizeof(name)) == 0) {
      return CannotListen(address, "another process serves it; stop that one or choose another path");
    }
    // A socket that is another user's, or has a full backlog, may well be served.
    if (errno != ECONNREFUSED && errno != ENOENT && errno != ENOTSOCK && errno != EPROTOTYPE) {
      return CannotListen(address,
                          std::string("whether another process serves it cannot be told: ") + std::strerror(errno));
    }
  }
  const Socket socket(AF_UNIX);
  if (::bind(socket.fd(), raw, sizeof(name)) == 0) {
    ::unlink(path.c_str());
    return absl::OkStatus();
  }
  if (errno != EADDRINUSE) return CannotListen(address, std::strerror(errno));
  // gRPC replaces a socket that nobody serves any more; any other file is not ours to remove.
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) return absl::OkStatus();
  return CannotListen(address, "a file of that name is there and is no socket");
}

bool IsUnix(const std::string& address) { return address.rfind(kUnixPrefix, 0) == 0; }

}  // namespace

absl::Status CheckListenAddress(const std::string& address) {
  return IsUnix(address) ? CheckUnix(address) : CheckTcp(address);
}

absl::Status BindFault(const std::string& address) {
  return CannotListen(address, "gRPC could not bind it (GRPC_VERBOSITY=debug tells more)");
}

std::string WithPort(const std::string& address, int port) {
  if (IsUnix(address)) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

}  // namespace berth
