// A memory backend behind a thread of its own: a step may be done at once, within Submit, or whenever it pleases; it
// may fail at either end. As many steps in flight as the scenario says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "berth/backend.h"
#include "fakes/fake_clock.h"
#include "fakes/memory_backend.h"
#include "scenario.h"

namespace berth::simulation {

class ThreadedBackend final : public Backend {
 public:
  // Every step moves `clock` by the time of one plan, as in the simulation without threads, whatever it says it took.
  ThreadedBackend(const Scenario& scenario, std::int32_t max_context_tokens, test::FakeClock* clock);
  ~ThreadedBackend() override;

  const BackendInfo& info() const override { return info_; }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

  // --- Any thread.
  // One of the next steps fails: in Submit, or later.
  void FailAStep() { ++failures_due_; }
  bool busy() const { return in_flight_ > 0; }
  std::int64_t steps() const { return steps_; }
  std::int64_t failures() const { return failures_; }

  // Once the engine is gone.
  std::int64_t swapped_blocks() const { return swapped_blocks_; }  // back in
  // What was wrong with the plans, in words; empty = nothing.
  std::string fault() const { return fault_.empty() ? inner_.fault() : fault_; }

 private:
  bool TakeFailure();
  void RunStep();
  void CheckWrites(const StepPlan& plan);
  void Work();

  BackendInfo info_;
  const Duration step_time_;
  const Duration step_token_time_;
  test::FakeClock* const clock_;
  std::function<void()> notify_;
  std::atomic<std::int64_t> failures_due_ = 0;
  std::atomic<std::int64_t> failures_ = 0;
  std::atomic<std::int32_t> in_flight_ = 0;
  std::atomic<std::int64_t> steps_ = 0;

  std::mt19937_64 random_;  // the engine thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  test::MemoryBackend inner_;
  std::deque<std::uint64_t> waiting_;  // steps to run: how lazy the device is with each
  std::deque<std::int64_t> tokens_;    // of each step in flight
  std::int64_t done_ = 0;              // and not awaited
  std::string fault_;
  std::int64_t swapped_blocks_ = 0;
  bool stopped_ = false;

  std::thread thread_;
};

}  // namespace berth::simulation
