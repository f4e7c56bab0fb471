// What a call ended with, in the project's own words.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>

#include "absl/status/status.h"
#include "berth/clock.h"

namespace berth {

// The server's message, and in brackets its reason: "... (QUEUE_FULL)". The codes are gRPC's, number by number.
absl::Status ToStatus(const grpc::Status& status);

// A time of std::chrono::steady_clock as gRPC takes it; far away where it never comes.
std::chrono::system_clock::time_point ToSystemTime(TimePoint time);

}  // namespace berth
