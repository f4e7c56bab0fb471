#include "engine/usage_meter.h"

#include <algorithm>

namespace berth {

UsageMeter::UsageMeter(std::int64_t prompt_tokens, std::int64_t reserved_blocks, TimePoint arrival, TimePoint start)
    : prompt_tokens_(prompt_tokens),
      reserved_blocks_(reserved_blocks),
      arrival_(arrival),
      start_(start),
      held_since_(start) {}

void UsageMeter::SetHeldBlocks(std::int64_t blocks, TimePoint now) {
  held_block_seconds_ = HeldBlockSeconds(now);
  held_since_ = now;
  held_blocks_ = blocks;
  peak_blocks_ = std::max(peak_blocks_, blocks);
}

void UsageMeter::AddOutputToken(TimePoint now) {
  ++output_tokens_;
  if (!first_token_.has_value()) first_token_ = now;
}

double UsageMeter::HeldBlockSeconds(TimePoint now) const {
  return held_block_seconds_ + static_cast<double>(held_blocks_) * ToSeconds(now - held_since_);
}

Usage UsageMeter::At(TimePoint end) const {
  Usage usage;
  usage.prompt_tokens = prompt_tokens_;
  usage.output_tokens = output_tokens_;
  usage.reserved_blocks = reserved_blocks_;
  usage.peak_blocks = peak_blocks_;
  usage.kv_block_seconds = static_cast<double>(reserved_blocks_) * ToSeconds(end - start_);
  usage.held_block_seconds = HeldBlockSeconds(end);
  usage.accelerator_seconds = ToSeconds(accelerator_time_);
  usage.queue_time = queue_time();
  usage.prefill_time = first_token_.value_or(end) - start_;
  if (first_token_.has_value()) {
    usage.decode_time = end - *first_token_;
    usage.time_to_first_token = *first_token_ - arrival_;
  }
  return usage;
}

Usage UsageWithoutStart(std::int64_t prompt_tokens, TimePoint arrival, TimePoint end) {
  Usage usage;
  usage.prompt_tokens = prompt_tokens;
  usage.queue_time = end - arrival;
  return usage;
}

}  // namespace berth
