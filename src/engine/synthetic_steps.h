// Steps that serve nobody: they teach the step cost model at the start, and try whether a backend that failed is back.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "berth/backend.h"
#include "berth/step.h"
#include "kv/block_pool.h"
#include "scheduler/step_cost_model.h"

namespace berth {

// So many sequences that each compute `tokens` tokens behind `position` stored ones, and draw one.
struct SyntheticWork {
  std::int32_t sequences = 1;
  std::int32_t tokens = 1;
  std::int32_t position = 0;

  StepWork work() const;
};

// A plan for the work on blocks of its own, which return when it is destroyed. What the blocks held counts as computed:
// only times matter. Nothing of it enters the prefix index.
class SyntheticStep {
 public:
  // Absent where the pool has not enough free blocks.
  static std::optional<SyntheticStep> Make(const SyntheticWork& work, std::int64_t number, BlockPool* pool);

  const StepPlan& plan() const { return plan_; }

 private:
  SyntheticStep() = default;

  std::vector<TokenId> tokens_;
  StepPlan plan_;
  BlockReservation blocks_;
};

// Runs a step to its end.
using RunStep = std::function<absl::Status(const StepPlan& plan, StepResult* result)>;

// Runs at most `steps` steps of different kinds, fewer where the bounds of policy, backend and pool leave fewer or a
// quarter of a second of real time is over. Fails with the first step that does.
absl::Status Calibrate(int steps, std::int64_t max_sequences, const BackendInfo& info, const RunStep& run,
                       BlockPool* pool, StepCostModel* model);

}  // namespace berth
