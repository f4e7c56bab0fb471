// What every client of ours needs of a channel.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "berth/clock.h"

namespace berth {

// Returns when the channel is connected. A refused connection is an answer, told at once; only silence is waited for,
// for `timeout`. Errors are Unavailable and one line: `remedy` follows "nothing listens at ADDRESS: ".
absl::Status WaitUntilConnected(grpc::Channel* channel, const std::string& address, Duration timeout,
                                const std::string& remedy);

// The server's own message, with its reason in brackets where it gave one: "... (QUEUE_FULL)". The codes are the same.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace berth
