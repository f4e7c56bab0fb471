#pragma once

#include <string>

#include "absl/status/status.h"

namespace berth::test {

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace berth::test
