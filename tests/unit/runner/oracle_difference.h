// A backend against a naive float64 forward pass.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "backend_harness.h"
#include "fakes/oracle_transformer.h"

namespace berth::test {

inline std::vector<TokenId> RandomIds(std::int32_t count, std::int32_t vocab_size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

// The largest distance of any log-probability from the oracle's, over every position and the whole vocabulary. The ids
// are fed in chunks.
inline double LargestDifferenceFromOracle(const Model& model, Backend& backend, const std::vector<TokenId>& ids,
                                          std::int32_t chunk) {
  const FedSequence sequence{ids, Blocks(static_cast<std::int64_t>(ids.size()), backend.info().pool.block_tokens), 0};
  const std::vector<Following> got = FeedAll(backend, sequence, chunk, model.config.vocab_size);
  OracleTransformer oracle(model, backend.info().kv_dtype);
  double worst = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::vector<double> expected = oracle.Next(ids[i]);
    EXPECT_EQ(got[i].top.size(), expected.size());
    for (const TopLogprob& top : got[i].top) {
      const double difference = std::abs(top.logprob - expected[static_cast<std::size_t>(top.token_id)]);
      worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
    }
  }
  return worst;
}

}  // namespace berth::test
