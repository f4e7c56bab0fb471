// One call for the metrics, from its beginning to its status.
#pragma once

#include "berth/clock.h"
#include "berth/metrics.h"

namespace berth {

// A value: whoever ends the call has it, and ends it once, just before the status goes out.
class RpcTimer {
 public:
  // The call begins. Both must outlive the timer.
  RpcTimer(RpcMethod method, MetricSink* metrics, const Clock* clock)
      : method_(method), metrics_(metrics), clock_(clock), start_(clock->Now()) {
    metrics_->OnRpcStart(method_);
  }

  // `status`: gRPC's code.
  void End(int status) const { metrics_->OnRpcEnd(method_, status, clock_->Now() - start_); }

 private:
  RpcMethod method_;
  MetricSink* metrics_;
  const Clock* clock_;
  TimePoint start_;
};

}  // namespace berth
