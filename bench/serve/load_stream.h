// One GenerateStream call: gRPC's threads tell what comes, and it is counted on the spot.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "berth/clock.h"
#include "berth/v1/inference.grpc.pb.h"
#include "tally.h"
#include "workload.h"

namespace berth::bench {

// The time that is measured.
struct Window {
  TimePoint start{};
  TimePoint end = kNoDeadline;
  bool Has(TimePoint at) const { return at >= start && at < end; }
};

struct StreamSetup {
  v1::Inference::Stub* stub = nullptr;
  Tally* tally = nullptr;
  Slo slo;
  Window window;
  TimePoint due{};     // when it should have been sent: latencies count from here, however late it really was
  Duration timeout{};  // zero = none
};

// Frees itself when the call is over.
class LoadStream final : public grpc::ClientReadReactor<v1::GenerateStreamResponse> {
 public:
  // `on_end` is the last thing that is called, on a thread of gRPC's.
  LoadStream(StreamSetup setup, Job job, std::function<void()> on_end);

  // For TryCancel from outside; lives for as long as somebody holds it.
  const std::shared_ptr<grpc::ClientContext>& context() const { return context_; }
  void Start();

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void OnTokens(const v1::Tokens& tokens);
  void CountEnd(const grpc::Status& status);

  const StreamSetup setup_;
  const Job job_;
  const std::function<void()> on_end_;
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  v1::GenerateStreamResponse response_;
  bool answered_ = false;  // something came before the status
  bool gave_up_ = false;
  std::int64_t tokens_ = 0;
  TimePoint first_token_{};
  TimePoint last_token_{};
};

}  // namespace berth::bench
