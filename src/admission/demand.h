// How many KV blocks a request may come to hold. One formula, three uses: reserved at the start, enforced while it
// runs, billed at the end.
#pragma once

#include <cstdint>

#include "berth/kv.h"

namespace berth {

// Blocks that `n` sequences of one prompt of P tokens and at most O output tokens each hold at most, B tokens a block.
// The last sampled token is never fed back, so a sequence stores T = P + O - 1 tokens; forks share the prompt's full
// blocks: ⌈P/B⌉ if O = 1, else ⌊P/B⌋ + n · (⌈T/B⌉ - ⌊P/B⌋). REQUIRES: P ≥ 1, O ≥ 1, n ≥ 1, B ≥ 1 and P + O + B < 2^62 /
// n.
std::int64_t WorstBlocks(std::int64_t prompt_tokens, std::int64_t max_output_tokens, std::int64_t n,
                         std::int64_t block_tokens);

}  // namespace berth
