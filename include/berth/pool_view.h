// What admission asks about sequences and their blocks while it plans. Answers are values; nothing of the pool is seen.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/units.h"

namespace berth {

// A computed block that a waiting request would not need to compute again.
struct CachedBlock {
  BlockId block = kNoBlock;
  // Its holder where exactly one request holds it; kNoRequest where it is idle or shared.
  RequestKey holder = kNoRequest;
};

// Answers stay the same from the start of a plan until its decisions are committed: what the plan itself decides does
// not show here, admission adds it.
class PoolView {
 public:
  virtual ~PoolView() = default;

  // The distinct blocks that the waiting request would find if it started now.
  virtual void FindCached(RequestKey request, std::vector<CachedBlock>* out) const = 0;

  // Tokens that a running request has computed and would have to compute again.
  virtual std::int64_t RecomputeTokens(RequestKey request) const = 0;

  // What a request that has started, running or parked, counts against its tenant's token rate so far: its prompt and
  // the tokens drawn, over all choices.
  virtual std::int64_t UsedTokens(RequestKey request) const = 0;

  // Steps from its start until a waiting request has ended at the latest, if it finds so many cached blocks.
  virtual std::int64_t StepsToFinish(RequestKey request, std::int64_t cached_blocks) const = 0;
};

}  // namespace berth
