#include "cli/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace berth::cli {
namespace {

using ::testing::HasSubstr;

// 2 · 2 · 1 · 8 · 2 = 64 bytes a token in bf16.
constexpr KvShape kShape = {.layers = 2, .kv_heads = 1, .head_dim = 8};
constexpr std::int64_t kBlockBytes = 64 * 16;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(PlanPoolTest, AutoTakesHalfOfWhatIsFree) {
  const absl::StatusOr<PoolPlan> plan = PlanPool(ServerConfig(), kShape, 1 << 20, 10 * kBlockBytes);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shape.num_blocks, 5);
  EXPECT_EQ(plan->shape.block_tokens, 16);
  EXPECT_EQ(plan->bytes, 5 * kBlockBytes);
}

TEST(PlanPoolTest, AutoTakesNoMoreThanItsFullContextsNeed) {
  const absl::StatusOr<PoolPlan> plan = PlanPool(ServerConfig(), kShape, 33, 1LL << 40);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shape.num_blocks, 16 * 3);
}

TEST(PlanPoolTest, AGivenSizeIsNeverExceeded) {
  ServerConfig config;
  config.kv_cache.memory_bytes = 3 * kBlockBytes + kBlockBytes - 1;
  EXPECT_EQ(PlanPool(config, kShape, 16, 0)->shape.num_blocks, 3);
  config.compute.float32 = true;  // twice the bytes a token
  EXPECT_EQ(PlanPool(config, kShape, 16, 0)->shape.num_blocks, 1);
}

TEST(PlanPoolTest, TheHostsMemoryIsCountedInBlocksToo) {
  ServerConfig config;
  config.kv_cache.host_swap_bytes = 5 * kBlockBytes - 1;
  EXPECT_EQ(PlanPool(config, kShape, 16, 1LL << 30)->shape.host_blocks, 4);
  EXPECT_EQ(PlanPool(ServerConfig(), kShape, 16, 1LL << 30)->shape.host_blocks, 0);
}

TEST(PlanPoolTest, LessThanOneBlockIsRefusedWithTheRemedy) {
  ServerConfig config;
  config.kv_cache.memory_bytes = kBlockBytes - 1;
  EXPECT_THAT(Message(PlanPool(config, kShape, 16, 1LL << 30).status()), HasSubstr("--kv-memory"));
  EXPECT_EQ(PlanPool(ServerConfig(), kShape, 16, -5).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanPolicyTest, SequencesFollowBlocksAndTheResultIsValid) {
  const absl::StatusOr<Policy> policy = PlanPolicy(ServerConfig(), {.num_blocks = 1000, .block_tokens = 16}, 8192);
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->classes[0].slot_guarantee, 38);
  EXPECT_EQ(policy->classes[1].slot_guarantee, 12);
  for (std::int32_t blocks = 1; blocks < 20; ++blocks) {
    EXPECT_TRUE(PlanPolicy(ServerConfig(), {.num_blocks = blocks, .block_tokens = 16}, 128).ok()) << blocks;
  }
}

TEST(PlanPolicyTest, FewerSequencesThanClassesWithAGuaranteeIsOneClearLine) {
  ServerConfig config;
  config.scheduler.max_running_sequences = 1;
  const absl::Status status = PlanPolicy(config, {.num_blocks = 1000, .block_tokens = 16}, 8192).status();
  EXPECT_THAT(Message(status), HasSubstr("max_running_sequences is 1"));
}

TEST(ModelPathTest, AGivenPathIsTakenAndAnAbsentDefaultSaysHowToGetIt) {
  ModelSettings settings;
  settings.path = "/some/model.gguf";
  EXPECT_EQ(*ResolveModelPath(settings), "/some/model.gguf");
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/absent", 1), 0);
  EXPECT_THAT(Message(ResolveModelPath(ModelSettings()).status()), HasSubstr("make model"));
}

}  // namespace
}  // namespace berth::cli
