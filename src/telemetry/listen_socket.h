// A listening TCP socket from an address as operators write it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace berth {

struct ListenSocket {
  int fd = -1;          // the caller's to close
  std::string address;  // with the port really bound
};

// HOST:PORT or [IPV6]:PORT, HOST an IPv4 address or localhost; port 0 = any free port. Not blocking. Fails with one
// line that says what is wrong with the address, or why it cannot be had.
absl::StatusOr<ListenSocket> Listen(const std::string& address);

}  // namespace berth
