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
  config.kv_cache.memory = Quantity{QuantityUnit::kBytes, 3 * kBlockBytes + kBlockBytes - 1};
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
  config.kv_cache.memory = Quantity{QuantityUnit::kBytes, kBlockBytes - 1};
  EXPECT_THAT(Message(PlanPool(config, kShape, 16, 1LL << 30).status()), HasSubstr("--kv-memory"));
  EXPECT_EQ(PlanPool(ServerConfig(), kShape, 16, -5).status().code(), absl::StatusCode::kResourceExhausted);
}

PolicyContext PoolOf(std::int32_t blocks) {
  PolicyContext context;
  context.pool = {blocks, 16};
  context.context_tokens = 8192;
  return context;
}

TEST(PlanPoolTest, AShareIsOfWhatIsFreeAndSwapSpaceIsCountedInBlocks) {
  ServerConfig config;
  config.kv_cache.memory = PercentOf(50);
  config.kv_cache.host_swap_bytes = 3 * kBlockBytes + 1;
  const absl::StatusOr<PoolPlan> plan = PlanPool(config, kShape, 16, 2'000'000);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shape.num_blocks, 1'000'000 / kBlockBytes);
  EXPECT_EQ(plan->shape.host_blocks, 3);
  EXPECT_EQ(PlanPool(config, kShape, 16, -5).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanPolicyTest, SequencesFollowBlocks) {
  Diagnostics findings("");
  const absl::StatusOr<Policy> policy = PlanPolicy(ServerConfig(), PoolOf(1000), &findings);
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->classes[0].slot_guarantee, 38);
  EXPECT_EQ(policy->classes[1].slot_guarantee, 12);
}

TEST(PlanPolicyTest, ALocalCommandHasAnyPoolToItself) {
  const ServerConfig config = LocalConfig(1);
  for (std::int32_t blocks = 1; blocks < 20; ++blocks) {
    Diagnostics findings("");
    const absl::StatusOr<Policy> policy = PlanPolicy(config, PoolOf(blocks), &findings);
    ASSERT_TRUE(policy.ok()) << policy.status();
    EXPECT_EQ(policy->classes[0].kv_guarantee_blocks, blocks);
    EXPECT_EQ(policy->classes[0].overload, Overload::kQueue);
  }
}

TEST(PlanPolicyTest, FewerSequencesThanClassesWithAGuaranteeIsOneClearLine) {
  ServerConfig config;
  config.scheduler.max_running_sequences = 1;
  Diagnostics findings("");
  const absl::Status status = PlanPolicy(config, PoolOf(1000), &findings).status();
  EXPECT_EQ(Message(status),
            "classes: the slot_guarantee of all classes add up to 2 (interactive 1, batch 1), "
            "scheduler.max_running_sequences is 1; lower them or raise that");
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
