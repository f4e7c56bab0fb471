// A client of berth.v1.Inference that speaks in the project's own types: what `berth client generate` and the tests
// use.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/request.h"

namespace berth {

struct ClientOptions {
  std::string address;        // "127.0.0.1:8433" or "unix:/path"
  std::string model;          // empty = the served one
  std::string service_class;  // empty = the server's default
  // For the whole call, as its gRPC deadline; zero = none.
  Duration timeout{};
  // How long a server may take to answer the connection. A port where nothing listens is told at once.
  Duration connect_timeout = std::chrono::seconds(5);
};

// Thread-safe: each call is of its own.
class GenerateClient {
 public:
  // Connects at the first call.
  explicit GenerateClient(ClientOptions options);
  ~GenerateClient();

  // Sends `spec` and calls `on_event` on this thread with every event as it comes: Admitted, TokenDelta*, Finished,
  // Completed. Not sent: arrival and deadline (ClientOptions::timeout is the call's), a max_output_tokens that is a
  // default, an empty request_id (the server makes one). TokenDelta::token_ids are empty unless
  // spec.output.return_token_ids. Errors are one line: the server's own message and its reason in brackets, "...
  // (QUEUE_FULL)", with the gRPC code; or Unavailable naming the address where nobody answers there. A stop request,
  // from any thread, cancels the call: Cancelled.
  absl::Status GenerateStream(const GenerateSpec& spec, const std::function<void(const StreamEvent&)>& on_event,
                              const std::stop_token& stop = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace berth
