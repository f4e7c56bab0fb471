// What of a preempted request lies in the host's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/units.h"
#include "kv/host_blocks.h"

namespace berth {

// The computed tokens of one request, block by block as they lay in the pool: the prompt's full blocks from the first,
// then what follows them, one choice after the other. A choice that ended has nothing.
struct HostCopy {
  // kLeaving: the next step is to make the copies out. kThere: a step in flight makes them, or they are made.
  // kReturning: it runs again, and the copies in are to be made or being made.
  enum class State : std::uint8_t { kLeaving, kThere, kReturning };

  State state = State::kLeaving;
  std::int64_t shared_tokens = 0;        // of the prompt's full blocks
  std::vector<std::int64_t> own_tokens;  // per choice, beyond them
  HostHolding holding;

  std::int64_t BlockCount(std::int64_t block_tokens) const {
    std::int64_t blocks = CeilDiv(shared_tokens, block_tokens);
    for (const std::int64_t tokens : own_tokens) blocks += CeilDiv(tokens, block_tokens);
    return blocks;
  }
  // Where the choice's own blocks begin among holding.blocks().
  std::int64_t OwnBegin(std::int32_t choice, std::int64_t block_tokens) const {
    std::int64_t begin = CeilDiv(shared_tokens, block_tokens);
    for (std::int32_t q = 0; q < choice; ++q) {
      begin += CeilDiv(own_tokens[static_cast<std::size_t>(q)], block_tokens);
    }
    return begin;
  }
};

}  // namespace berth
