#include "engine/usage_meter.h"

#include <algorithm>

namespace berth {

void UsageMeter::Integral::Set(std::int64_t new_blocks, TimePoint now) {
  block_seconds = At(now);
  since = now;
  blocks = new_blocks;
}

void UsageMeter::Start(std::int64_t reserved_blocks, std::int64_t cached_tokens, TimePoint now) {
  if (!start_.has_value()) {
    start_ = now;
    reserved_blocks_ = reserved_blocks;
    cached_tokens_ = cached_tokens;
  }
  reserved_.Set(reserved_blocks, now);
}

void UsageMeter::SetReservedBlocks(std::int64_t blocks, TimePoint now) { reserved_.Set(blocks, now); }

void UsageMeter::SetHeldBlocks(std::int64_t blocks, TimePoint now) {
  held_.Set(blocks, now);
  peak_blocks_ = std::max(peak_blocks_, blocks);
}

void UsageMeter::NoteToken(TimePoint now) {
  if (!first_token_.has_value()) first_token_ = now;
}

void UsageMeter::Park(TimePoint now) {
  ++preemptions_;
  reserved_.Set(0, now);
  held_.Set(0, now);
}

Usage UsageMeter::At(TimePoint end) const {
  Usage usage;
  usage.prompt_tokens = prompt_tokens_;
  usage.queue_time = queue_time(end);
  if (!start_.has_value()) return usage;
  usage.cached_tokens = cached_tokens_;
  usage.reserved_blocks = reserved_blocks_;
  usage.peak_blocks = peak_blocks_;
  usage.kv_block_seconds = reserved_.At(end);
  usage.held_block_seconds = held_.At(end);
  usage.accelerator_seconds = ToSeconds(accelerator_time_);
  usage.preemptions = preemptions_;
  usage.recomputed_tokens = recomputed_tokens_;
  usage.prefill_time = first_token_.value_or(end) - *start_;
  if (first_token_.has_value()) {
    usage.decode_time = end - *first_token_;
    usage.time_to_first_token = *first_token_ - arrival_;
  }
  return usage;
}

}  // namespace berth
