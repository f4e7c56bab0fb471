// Addresses a server may be told to listen on.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace berth {

// OK where "HOST:PORT", "[IPv6]:PORT" or "unix:PATH" can be bound at this moment; else one line that says why not. gRPC
// itself only says that it did not work.
absl::Status CheckListenAddress(const std::string& address);

// Where gRPC could not bind an address that passed the check all the same.
absl::Status BindFault(const std::string& address);

// The address with the port really bound; unix addresses as they are.
std::string WithPort(const std::string& address, int port);

}  // namespace berth
