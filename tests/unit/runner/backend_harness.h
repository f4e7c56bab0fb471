// Drives a Backend as the engine does, without an engine: sequences with block tables, steps, log-probabilities.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "berth/backend.h"
#include "fakes/gguf_builder.h"
#include "model/model.h"
#include "runner/cpu/cpu_backend.h"

namespace berth::test {

// Fails the test and returns nullptr where the file cannot be opened.
std::unique_ptr<Model> OpenModel(const std::string& path);
std::unique_ptr<Model> OpenModel(const GgufBuilder& builder);
std::unique_ptr<Backend> MakeBackend(const Model& model, const CpuBackendOptions& options);

// A sequence whose tokens are known beforehand.
struct FedSequence {
  std::vector<TokenId> ids;
  std::vector<BlockId> blocks;
  std::int32_t stored = 0;  // tokens already computed

  std::int32_t left() const { return static_cast<std::int32_t>(ids.size()) - stored; }
};

// What follows one position: the log-probability of the id that really follows (or of id 0, after the last), and of the
// `top` most likely ones.
struct Following {
  float logprob = 0.0F;
  std::vector<TopLogprob> top;

  bool operator==(const Following& other) const;  // bit for bit
};

// One step under construction.
class StepUnderTest {
 public:
  // Feeds the next `count` tokens of the sequence; wants what follows the last `wanted` of them.
  void Feed(FedSequence* sequence, std::int32_t count, std::int32_t wanted, std::int32_t top);
  // Runs it and starts anew. One list per Feed, in order.
  std::vector<std::vector<Following>> Run(Backend& backend);

  StepPlan& plan() { return plan_; }

 private:
  StepPlan plan_;
  std::vector<std::int32_t> wanted_;
};

// All blocks 0, 1, ... that `tokens` tokens need, beginning at `first`.
std::vector<BlockId> Blocks(std::int64_t tokens, std::int32_t block_tokens, BlockId first = 0);

// Computes the whole sequence alone, in steps of `chunk` tokens; what follows every position.
std::vector<Following> FeedAll(Backend& backend, FedSequence sequence, std::int32_t chunk, std::int32_t top);

}  // namespace berth::test
