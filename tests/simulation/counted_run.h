// What the metrics of a threaded run say, held against what its callers heard.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "telemetry/telemetry.h"
#include "watched_request.h"

namespace berth::simulation {

// Thread-safe, but for Violation.
class CountedRun {
 public:
  CountedRun(const KvPoolShape& pool, const Policy& policy, const Clock* clock);

  // The engine's.
  MetricSink* sink() { return &telemetry_; }
  // Before the engine gets it.
  void OnPolicy(const Policy& policy);
  // What the frontend would tell: a request that was refused before it had a sink, or one that heard its last event.
  void OnRefusal(ClassId service_class, TenantId tenant, RefusalReason reason);
  void OnEnd(const RequestEnded& request) { telemetry_.OnEnd(request); }

  // Once the engine is gone. `requests`: all that heard a last event. Empty = every total agrees.
  std::string Violation(std::span<const std::shared_ptr<WatchedRequest>> requests) const;

 private:
  Telemetry telemetry_;
  std::mutex mutex_;
  std::int64_t refusals_ = 0;  // guarded by mutex_
};

}  // namespace berth::simulation
