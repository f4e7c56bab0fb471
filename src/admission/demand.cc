#include "admission/demand.h"

#include "base/check.h"
#include "base/planted_bug.h"
#include "berth/units.h"

namespace berth {

std::int64_t WorstBlocks(std::int64_t prompt_tokens, std::int64_t max_output_tokens, std::int64_t n,
                         std::int64_t block_tokens) {
  BERTH_CHECK(prompt_tokens >= 1 && max_output_tokens >= 1 && n >= 1 && block_tokens >= 1);
  // Without a second output token nothing is stored after the prompt, so no fork ever needs a block of its own.
  if (max_output_tokens == 1) return CeilDiv(prompt_tokens, block_tokens);
  const std::int64_t shared_blocks = prompt_tokens / block_tokens;
  const std::int64_t stored_tokens =
      prompt_tokens + max_output_tokens - 1 - (Planted(PlantedBug::kDemandOffByOne) ? 1 : 0);
  return shared_blocks + n * (CeilDiv(stored_tokens, block_tokens) - shared_blocks);
}

}  // namespace berth
