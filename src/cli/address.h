// Addresses of servers, as users give them.
#pragma once

#include <charconv>
#include <string>
#include <system_error>

namespace berth::cli {

// "HOST:PORT" or "unix:PATH"; whether somebody listens there is the call's to find out.
inline bool LooksLikeAddress(const std::string& address) {
  if (address.starts_with("unix:")) return address.size() > 5;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  int port = 0;
  const char* end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
  return error == std::errc() && stop == end && port > 0 && port < 65536;
}

}  // namespace berth::cli
