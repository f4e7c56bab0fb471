// Many steps at once, where each would only decode: what lets a simulation jump over the time in which nothing is
// decided.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace berth {

std::int64_t Scheduler::QuietSteps() const {
  if (in_flight_ > 0 || running_.empty() || !swap_out_.empty() || !swap_in_.empty()) return 0;
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  for (const Request* r : running_) {
    if (!r->forked) return 0;  // its choices part in its first decode step
    for (const Choice& c : r->choices) {
      if (c.ended) continue;
      if (!IsDecoding(*r, c)) return 0;
      const std::int64_t drawn = static_cast<std::int64_t>(c.history.size()) - r->prompt_tokens();
      steps = std::min(steps, r->spec.max_output_tokens - drawn - 1);
    }
  }
  return steps;
}

void Scheduler::SkipSteps(std::int64_t steps, TokenId token) {
  BERTH_CHECK(steps >= 0 && steps <= QuietSteps());
  last_work_ = StepWork();
  for (Request* r : running_) {
    for (std::size_t q = 0; q < r->choices.size(); ++q) {
      Choice& c = r->choices[q];
      if (c.ended) continue;
      c.history.insert(c.history.end(), static_cast<std::size_t>(steps), token);
      c.stored += steps;
      c.ahead = c.stored;
      c.highest_stored = std::max(c.highest_stored, c.stored);
      r->blocks->Cover(static_cast<std::int32_t>(q), c.stored);
      r->blocks->MarkComputed(static_cast<std::int32_t>(q), c.history, c.stored);
      computed_tokens_ += steps;
      ++last_work_.decode_sequences;
      last_work_.decode_kv_tokens += c.stored;
    }
  }
  moved_ends_.clear();
  draft_.clear();
  draft_block_ids_.clear();
}

}  // namespace berth
