// A backend without a model: its tokens are a pure function of what came before, it can be stopped and made to fail,
// and it crashes on any plan that breaks a rule of berth/step.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "berth/backend.h"
#include "fakes/fake_clock.h"

namespace berth::test {

// The token that follows the prompt and the output so far.
using NextToken = std::function<TokenId(std::span<const TokenId> prompt, std::span<const TokenId> output)>;

// Bytes 'a' to 'z' by a hash of the prompt and the position.
TokenId HashedLetter(std::span<const TokenId> prompt, std::span<const TokenId> output);
// The script's bytes, then `then` for ever.
NextToken Script(std::string script, TokenId then);
NextToken Script(std::vector<TokenId> script, TokenId then);

// How likely the fake holds `token` to be: a function of the token alone, higher for lower ids.
float FakeLogprob(TokenId token);

// What the tests may look at afterwards.
struct SeenStep {
  std::int64_t step = 0;
  SequenceId sequence = 0;
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_blocks = 0;
  std::vector<TokenId> banned;  // of the row that draws; empty where none does
};

class FakeBackend final : public Backend {
 public:
  // `clock` may be null; else every step takes `step_time` on it.
  explicit FakeBackend(BackendInfo info, NextToken next_token = HashedLetter, FakeClock* clock = nullptr,
                       Duration step_time = {});

  // --- The engine's side.
  const BackendInfo& info() const override { return info_; }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

  // --- The test's side; any thread.
  // From now on a step waits in Await until it is let go.
  void CloseGate();
  // Returns when a step waits at the gate.
  void WaitForStepAtGate();
  // Lets one step through, which is waiting or the next to come.
  void LetOneStepGo();
  // Lets all through.
  void OpenGate();
  // The step of that number fails, in Submit or in Await.
  void FailSubmit(std::int64_t step);
  void FailAwait(std::int64_t step);
  std::vector<SeenStep> seen() const;

 private:
  void CheckPlan(const StepPlan& plan);
  void CheckSampling(const LogitRow& row) const;
  void Store(const StepPlan& plan, const StepRow& row);
  LogitResult Answer(const LogitRow& row, StepResult* result) const;
  std::size_t Slot(const StepPlan& plan, const StepRow& row, std::int32_t position) const;

  const BackendInfo info_;
  const NextToken next_token_;
  FakeClock* const clock_;
  const Duration step_time_;

  // The engine thread's.
  std::function<void()> notify_;
  const StepPlan* plan_ = nullptr;
  std::int64_t last_step_ = -1;
  std::vector<TokenId> memory_;  // the token whose K and V a slot would hold
  std::map<SequenceId, std::vector<TokenId>> sequences_;

  mutable std::mutex mutex_;
  std::condition_variable gate_changed_;
  // Guarded by mutex_:
  bool gate_closed_ = false;
  bool at_gate_ = false;
  int permits_ = 0;
  std::set<std::int64_t> failing_submits_;
  std::set<std::int64_t> failing_awaits_;
  std::vector<SeenStep> seen_;
};

}  // namespace berth::test
