// A backend without a model: its tokens are a pure function of what came before, it can be stopped and made to fail,
// and it crashes on any plan that breaks a rule of berth/step.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
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
// The same for the choice of a group.
using NextTokenOfChoice = std::function<TokenId(std::int32_t choice, std::span<const TokenId> output)>;

// Bytes 'a' to 'z' by a hash of the prompt and the position.
TokenId HashedLetter(std::span<const TokenId> prompt, std::span<const TokenId> output);
// The script's bytes, then `then` for ever.
NextToken Script(std::string script, TokenId then);
NextToken Script(std::vector<TokenId> script, TokenId then);

// How likely the fake holds `token` to be: a function of the token alone, higher for lower ids.
float FakeLogprob(TokenId token);

// One row of a step that was submitted. What the tests may look at afterwards.
struct SeenRow {
  std::int64_t step = 0;  // steps are counted as they are submitted, from 0
  SequenceId sequence = 0;
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_blocks = 0;
  std::vector<TokenId> banned;  // where the row draws; empty where it does not
};

class FakeBackend final : public Backend {
 public:
  // `clock` may be null; else every step takes `step_time` on it.
  explicit FakeBackend(BackendInfo info, NextToken next_token = HashedLetter, FakeClock* clock = nullptr,
                       Duration step_time = {});

  // Before the first step; instead of what the constructor got.
  void set_next_token_of_choice(NextTokenOfChoice next) { next_of_choice_ = std::move(next); }

  // --- The engine's side.
  const BackendInfo& info() const override { return info_; }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

  // --- The test's side; any thread.
  // From now on a step is not done until it is let go.
  void CloseGate();
  // Returns when so many steps wait at the gate.
  void WaitForStepAtGate(std::int64_t steps = 1);
  // Lets one step through, the first that is waiting or the next to come.
  void LetOneStepGo();
  // Lets all through.
  void OpenGate();
  // The n-th step fails, in Submit or in Await; in Await with it the one that was submitted behind it.
  void FailSubmit(std::int64_t step);
  void FailAwait(std::int64_t step);
  // Every step fails in Await, from now on until it is taken back.
  void SetBroken(bool broken);
  std::vector<SeenRow> seen() const;
  std::int64_t steps() const;           // submitted so far
  std::int64_t swapped_blocks() const;  // copied to the host's memory so far

 private:
  void CheckPlan(const StepPlan& plan);
  void CheckCarried(const StepPlan& plan) const;
  void CheckLogits(const StepPlan& plan) const;
  void CheckSampling(const LogitRow& row) const;
  void Copy(const StepPlan& plan);
  void Store(const StepPlan& plan, const StepRow& row);
  LogitResult Answer(const StepPlan& plan, const LogitRow& row, StepResult* result) const;
  // What the row reads: the tokens at its positions, through its block table.
  std::vector<TokenId> Read(const StepPlan& plan, const StepRow& row, std::int32_t tokens) const;
  std::size_t Slot(const StepPlan& plan, const StepRow& row, std::int32_t position) const;
  void NoteSeen(const StepPlan& plan);
  void CopyBlock(const std::vector<TokenId>& from, BlockId from_block, std::vector<TokenId>* to,
                 BlockId to_block) const;

  const BackendInfo info_;
  const NextToken next_token_;
  NextTokenOfChoice next_of_choice_;
  FakeClock* const clock_;
  const Duration step_time_;

  struct Submitted {
    const StepPlan* plan = nullptr;
    std::int64_t number = 0;
  };
  // As the step before drew it, where it is carried.
  TokenId Token(const StepPlan& plan, std::int32_t index) const;

  // The engine thread's.
  std::function<void()> notify_;
  std::deque<Submitted> in_flight_;
  std::vector<LogitResult> answers_;  // of the step that ran last
  std::size_t doomed_ = 0;            // so many of the steps in flight are behind one that failed
  std::vector<TokenId> memory_;       // the token whose K and V a slot would hold
  std::vector<TokenId> host_memory_;  // likewise, of what is swapped out

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::int64_t submitted_ = 0;
  std::int64_t swapped_blocks_ = 0;
  bool gate_closed_ = false;
  std::int64_t at_gate_ = 0;  // steps that were submitted and are not done
  std::int64_t done_ = 0;     // and those that are done and not awaited
  int permits_ = 0;
  bool broken_ = false;
  std::set<std::int64_t> failing_submits_;
  std::set<std::int64_t> failing_awaits_;
  std::vector<SeenRow> seen_;
};

}  // namespace berth::test
