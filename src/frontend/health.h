// How well the server is: the one place that decides it. docs/operations.md has the table.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/policy.h"
#include "engine/engine.h"

namespace berth {

enum class ServerState : std::uint8_t {
  kLoading,
  kServing,
  kDraining,
  kBackendFault,
  kNoProgress,
};

// "LOADING" and so on.
const char* ServerStateName(ServerState state);

struct ClassHealth {
  std::string name;
  bool serving = false;

  bool operator==(const ClassHealth&) const = default;
};

struct Health {
  ServerState state = ServerState::kLoading;
  // False: the engine's thread is stuck, and only a restart helps.
  bool live = true;
  std::string why;                   // one line, where the state is not kServing or the thread is stuck
  std::vector<ClassHealth> classes;  // those of the policy in force

  bool ready() const { return state == ServerState::kServing; }
};

// From when on something takes too long. What depends on the work is measured by what was predicted for it, with a
// floor for what nobody can predict: a busy machine, a page that must be read from disk.
struct HealthLimits {
  // A turn of the engine's thread computes nothing and waits for nobody: it takes milliseconds.
  Duration stuck_turn = std::chrono::seconds(30);
  // A step is stuck after this, or after so many times what it was predicted to take, whichever is longer.
  Duration stuck_step = std::chrono::minutes(2);
  int stuck_step_predictions = 100;
  // Likewise: nothing was computed, started or ended although something could.
  Duration no_progress = std::chrono::seconds(30);
  int no_progress_predictions = 25;
};

// What is judged.
struct HealthFacts {
  TimePoint now{};
  bool draining = false;
  EngineSigns signs;
  Engine::Load load;
};

// REQUIRES: the model is loaded.
Health JudgeHealth(const HealthFacts& facts, const Policy& policy, const HealthLimits& limits);

// Thread-safe; nothing waits for the engine's thread.
class HealthMonitor {
 public:
  // `engine` and `clock`, the engine's, must outlive the monitor.
  HealthMonitor(const Engine* engine, const Clock* clock, const HealthLimits& limits = {})
      : engine_(engine), clock_(clock), limits_(limits) {}

  // From now on the server is draining; there is no way back.
  void SetDraining() { draining_ = true; }
  bool draining() const { return draining_; }

  Health Now() const;

 private:
  const Engine* const engine_;
  const Clock* const clock_;
  const HealthLimits limits_;
  std::atomic<bool> draining_ = false;
};

}  // namespace berth
