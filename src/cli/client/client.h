// A client of berth.v1.Inference that speaks in the project's own types: what `berth client generate` and the tests
// use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/request.h"
#include "cli/client/connection.h"

namespace berth {

// A call that failed is tried again.
struct RetryNotice {
  std::int32_t retry = 0;  // from 1
  Duration wait{};         // until then
  absl::Status status;     // why
};

struct ClientOptions {
  ConnectionOptions connection;
  std::string model;          // empty = the served one
  std::string service_class;  // empty = the server's default
  std::string tenant;         // empty = whom the credentials stand for
  // For the whole call with all its attempts: each has what is left of it as its gRPC deadline. Zero = none.
  Duration timeout{};
  // How often a call may be tried again: see RetrySchedule.
  std::int32_t max_retries = 0;
  std::function<void(const RetryNotice&)> on_retry;  // before each wait, on the thread of the call; may be empty
};

// Thread-safe: each call is of its own.
class GenerateClient {
 public:
  // Connects at the first call.
  explicit GenerateClient(ClientOptions options);
  ~GenerateClient();

  // Sends `spec` and calls `on_event` on this thread with every event as it comes: Admitted, TokenDelta*, Finished,
  // Completed; Admitted once more where an attempt failed before it had told anything of the answer. Not sent: arrival
  // and deadline (ClientOptions::timeout is the call's), a max_output_tokens that is a default, an empty request_id
  // (the server makes one). TokenDelta::token_ids are empty unless spec.output.return_token_ids. Errors are one line:
  // the server's own message and its reason in brackets, "... (QUEUE_FULL)", with the gRPC code; or Unavailable naming
  // the address where nobody answers there. A stop request, from any thread, cancels the call: Cancelled.
  absl::Status GenerateStream(const GenerateSpec& spec, const std::function<void(const StreamEvent&)>& on_event,
                              const std::stop_token& stop = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace berth
