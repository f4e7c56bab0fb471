// The policy that the engine is given, whoever gives it: a reload, or an operator who stops a class.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "engine/engine.h"
#include "frontend/identity.h"

namespace berth::cli {

// Thread-safe. The engine takes a policy between two steps: what returns OK here has waited for that, but for no longer
// than some seconds, however long a step takes.
class LivePolicy {
 public:
  // `engine` was started with `running`; it and `callers`, who are to know each policy first, must outlive this.
  LivePolicy(Engine* engine, Callers* callers, const KvPoolShape& pool, Policy running)
      : engine_(engine), callers_(callers), pool_(pool), latest_(std::move(running)) {}

  // Puts a policy as the file resolves to in force, once `tell` has heard of it as the engine will have it; or says why
  // it cannot be, and nothing has changed.
  absl::Status Replace(const Policy& policy, const std::function<void(const Policy& next)>& tell);
  // What Replace would put in force.
  Policy Carried(const Policy& policy) const;
  // Stops the class as `stop: drain` does, until the next Replace.
  absl::Status Drain(const std::string& service_class);

 private:
  Policy CarriedLocked(const Policy& policy) const;
  // `latest_`, to all who must know it: those who name callers, and with them the metrics, before the engine.
  void GiveLocked();

  Engine* const engine_;
  Callers* const callers_;
  const KvPoolShape pool_;
  mutable std::mutex mutex_;
  Policy latest_;  // guarded by mutex_
};

}  // namespace berth::cli
