// A backend without a model: blocks hold the token ids that were written to them, and a drawn token is a hash of what a
// row reads through its block table. So a request's output is a function of the request alone exactly as long as every
// table shows it its own history, and whatever puts a wrong block into a table changes the output or is caught here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "berth/backend.h"

namespace berth::test {

// The token that follows `history` for this seed and choice: what MemoryBackend draws. Tokens lie in [0, 1000).
TokenId NextToken(std::uint64_t seed, std::int32_t choice, std::span<const TokenId> history);

class MemoryBackend final : public Backend {
 public:
  explicit MemoryBackend(const KvPoolShape& pool, std::int32_t max_step_tokens = 1 << 20,
                         std::int32_t max_steps_in_flight = 1);

  const BackendInfo& info() const override { return info_; }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

  // Runs the first step that was submitted and did not run yet; else it runs when it is awaited, as late as it may.
  void RunNext();
  // The next step fails, and with it the one that was submitted behind it, after having scribbled over every block that
  // they would have written, the host's too.
  void FailNextStep() { fail_next_ = true; }
  // As FailNextStep for every step of which `fails` says so.
  void set_fails(std::function<bool(const StepPlan&)> fails) { fails_ = std::move(fails); }
  // How many requests hold a block; a row that is submitted to write to a block with more than one holder is a fault.
  void set_references(std::function<int(BlockId)> references) { references_ = std::move(references); }
  // What a step takes.
  void set_step_time(std::function<Duration(const StepPlan&)> step_time) { step_time_ = std::move(step_time); }
  // What was wrong with the plans so far, in words; empty = nothing.
  const std::string& fault() const { return fault_; }

 private:
  void CheckSwaps(const StepPlan& plan);
  void CheckRow(const StepPlan& plan, const StepRow& row);
  void CheckCarried(const StepPlan& plan);
  void Scribble(const StepPlan& plan);
  void CopyBlocks(const StepPlan& plan);
  TokenId* Block(BlockId block) { return Row(&memory_, block); }
  TokenId* HostBlock(BlockId block) { return Row(&host_memory_, block); }
  TokenId* Row(std::vector<TokenId>* memory, BlockId block) const;
  TokenId& Cell(const StepPlan& plan, const StepRow& row, std::int64_t position);
  void RunRow(const StepPlan& plan, const StepRow& row);
  LogitResult Answer(const StepPlan& plan, const LogitRow& logit);
  TokenId Token(const StepPlan& plan, std::int32_t index) const;
  void Complain(const std::string& what);

  BackendInfo info_;
  std::vector<TokenId> memory_;
  std::vector<TokenId> host_memory_;
  struct Submitted {
    const StepPlan* plan = nullptr;
    bool behind_another = false;
    bool ran = false;
    absl::Status status;
    StepResult result;
  };
  absl::Status Run(const Submitted& step, StepResult* result);

  std::deque<Submitted> in_flight_;
  std::vector<LogitResult> answers_;  // of the step that ran last
  bool last_failed_ = false;          // of the step that ran last
  std::function<void()> notify_;
  bool fail_next_ = false;
  std::function<bool(const StepPlan&)> fails_;
  std::function<int(BlockId)> references_;
  std::function<Duration(const StepPlan&)> step_time_;
  std::string fault_;
};

}  // namespace berth::test
