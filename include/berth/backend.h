// What runs a step. The engine drives every backend the same way: Submit, then Await, in order. Steps run one after the
// other, in the order of Submit: what one writes, the next one reads.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "berth/kv.h"
#include "berth/step.h"

namespace berth {

struct BackendInfo {
  std::string name;  // "cpu (avx512-vnni, 2 threads)"
  KvPoolShape pool;  // blocks the backend holds memory for
  KvDtype kv_dtype = KvDtype::kBf16;
  std::int32_t vocab_size = 0;
  std::int32_t max_context_tokens = 0;
  std::int32_t max_step_tokens = 0;  // most tokens in one StepPlan
  std::int32_t max_sequences = std::numeric_limits<std::int32_t>::max();  // most rows in one StepPlan
  // 2: a step may be submitted while the one before runs, and feed tokens that this draws (CarriedToken).
  std::int32_t max_steps_in_flight = 1;
};

// Called from one thread (the engine's). A plan that breaks a rule of step.h (an id outside the vocabulary, a block
// outside the pool, a table too short) is a bug of the caller and crashes; a failing device is a Status.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;

  // Starts the step and returns at once. The plan, and what its rows borrow, stay unchanged until Await returned its
  // result; but what a row's history borrows may grow at its end. At most info().max_steps_in_flight steps are in
  // flight. After an error the blocks that the step would have written hold anything, and a step that was submitted
  // behind it fails as well.
  virtual absl::Status Submit(const StepPlan& plan) = 0;

  // Once, before the first Submit. From then on `notify` is called once for every submitted step, as soon as Await
  // would return without waiting: from a thread of the backend's, or from within Submit. It must not block and not call
  // back.
  virtual void NotifyWhenDone(std::function<void()> notify) = 0;

  // Blocks until the oldest step in flight is done. `result` is overwritten; its memory is reused.
  virtual absl::Status Await(StepResult* result) = 0;
};

}  // namespace berth
