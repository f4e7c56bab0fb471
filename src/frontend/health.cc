#include "frontend/health.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace berth {
namespace {

std::int64_t Seconds(Duration d) { return std::chrono::duration_cast<std::chrono::seconds>(d).count(); }

Duration Limit(Duration floor, int predictions, Duration predicted) { return std::max(floor, predictions * predicted); }

// One line where the engine's thread is stuck.
std::optional<std::string> WhyStuck(const HealthFacts& facts, const HealthLimits& limits) {
  const EngineSigns& signs = facts.signs;
  if (signs.in_turn_since.has_value() && facts.now - *signs.in_turn_since > limits.stuck_turn) {
    return absl::StrCat("the engine's thread has been in one turn for ", Seconds(facts.now - *signs.in_turn_since),
                        " s: restart the server");
  }
  const Duration limit = Limit(limits.stuck_step, limits.stuck_step_predictions, signs.predicted_step);
  if (signs.in_step_since.has_value() && facts.now - *signs.in_step_since > limit) {
    return absl::StrCat("the backend has been in one step for ", Seconds(facts.now - *signs.in_step_since),
                        " s: restart the server");
  }
  return std::nullopt;
}

// Something of the class runs, or its first request should: what it waits for is its own guarantee. What waits for room
// that others have is no fault: a full server serves.
bool ShouldGetOn(const ClassSnapshot& load) { return load.running_requests > 0 || load.guarantee_unmet; }

bool Waits(const ClassSnapshot& load, const ClassPolicy& c) {
  return c.stop != ClassStop::kHold && load.queued_requests + load.parked_requests > 0;
}

// When the class last got on; now where that is not known yet.
TimePoint ProgressOf(const HealthFacts& facts, std::size_t c) {
  return c < facts.signs.progress.size() ? facts.signs.progress[c] : facts.now;
}

// How long there has been work and nothing came of it; nothing where there is none.
std::optional<Duration> Stalled(const HealthFacts& facts, const Policy& policy) {
  bool runs = false;
  bool waits = false;
  TimePoint progress{};
  for (std::size_t c = 0; c < std::min(facts.load.classes.size(), policy.classes.size()); ++c) {
    runs |= facts.load.classes[c].running_requests > 0;
    waits |= Waits(facts.load.classes[c], policy.classes[c]);
    progress = std::max(progress, ProgressOf(facts, c));
  }
  if (!runs && !waits) return std::nullopt;
  return facts.now - progress;
}

void JudgeState(const HealthFacts& facts, const Policy& policy, Duration no_progress, Health* health) {
  const auto say = [health](ServerState state, std::string why) {
    health->state = state;
    if (health->why.empty()) health->why = std::move(why);
  };
  if (facts.draining) return say(ServerState::kDraining, "the server is shutting down");
  if (facts.signs.faulted) {
    return say(ServerState::kBackendFault, "the backend's last step failed; it is tried again once a second");
  }
  const std::optional<Duration> stalled = Stalled(facts, policy);
  if (!health->live || stalled.value_or(Duration::zero()) > no_progress) {
    return say(ServerState::kNoProgress, absl::StrCat("requests are there, and none got on for ",
                                                      Seconds(stalled.value_or(Duration::zero())), " s"));
  }
  health->state = ServerState::kServing;
}

}  // namespace

const char* ServerStateName(ServerState state) {
  constexpr const char* kNames[] = {"LOADING", "SERVING", "DRAINING", "BACKEND_FAULT", "NO_PROGRESS"};
  return kNames[static_cast<std::size_t>(state)];
}

Health JudgeHealth(const HealthFacts& facts, const Policy& policy, const HealthLimits& limits) {
  Health health;
  const std::optional<std::string> stuck = WhyStuck(facts, limits);
  health.live = !stuck.has_value();
  health.why = stuck.value_or("");
  const Duration no_progress = Limit(limits.no_progress, limits.no_progress_predictions, facts.signs.predicted_step);
  JudgeState(facts, policy, no_progress, &health);
  for (std::size_t c = 0; c < policy.classes.size(); ++c) {
    const ClassPolicy& service_class = policy.classes[c];
    if (service_class.removed) continue;
    const bool stalled = c < facts.load.classes.size() && ShouldGetOn(facts.load.classes[c]) &&
                         facts.now - ProgressOf(facts, c) > no_progress;
    health.classes.push_back(
        {service_class.name, health.ready() && service_class.stop == ClassStop::kNone && !stalled});
  }
  return health;
}

Health HealthMonitor::Now() const {
  const std::shared_ptr<const Policy> policy = engine_->policy();
  HealthFacts facts;
  facts.draining = draining_;
  facts.signs = engine_->signs();
  facts.load = engine_->load();
  facts.now = clock_->Now();  // last: what is compared with it is older
  return JudgeHealth(facts, *policy, limits_);
}

}  // namespace berth
