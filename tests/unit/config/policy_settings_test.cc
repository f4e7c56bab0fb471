#include "config/policy_settings.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(ResolvePolicy, TheServersClassesShareThePoolAsDocumented) {
  const Policy policy = ResolvePolicy(ServerConfig(), {.num_blocks = 1000, .block_tokens = 16}, 8192);
  ASSERT_EQ(policy.classes.size(), 2U);
  const ClassPolicy& interactive = policy.classes[0];
  EXPECT_EQ(interactive.name, "interactive");
  EXPECT_EQ(interactive.priority, 100);
  EXPECT_EQ(interactive.kv_guarantee_blocks, 600);
  EXPECT_EQ(interactive.ceiling_blocks(), 600);
  EXPECT_FALSE(interactive.preemptible);
  EXPECT_EQ(interactive.max_sequence_tokens, 4096);
  EXPECT_EQ(interactive.max_output_tokens, 1024);
  EXPECT_EQ(interactive.overload, Overload::kReject);
  EXPECT_EQ(interactive.max_queued_requests, 64);
  EXPECT_EQ(interactive.max_queued_tokens, 65536);
  EXPECT_EQ(interactive.max_wait, std::chrono::seconds(2));
  const ClassPolicy& batch = policy.classes[1];
  EXPECT_EQ(batch.name, "batch");
  EXPECT_EQ(batch.kv_guarantee_blocks, 200);
  EXPECT_EQ(batch.ceiling_blocks(), 1000);
  EXPECT_TRUE(batch.preemptible);
  EXPECT_EQ(batch.max_preemptions, 3);
  EXPECT_EQ(batch.max_sequence_tokens, 8192) << "the context";
  EXPECT_EQ(batch.overload, Overload::kQueue);
  ASSERT_EQ(policy.tenants.size(), 1U);
  EXPECT_EQ(policy.tenants[0].name, "default");
  EXPECT_EQ(policy.max_running_sequences, 64);
  EXPECT_EQ(policy.max_batched_tokens, 2048);
}

TEST(ResolvePolicy, CutsTokenLimitsToTheContext) {
  const Policy policy = ResolvePolicy(ServerConfig(), {.num_blocks = 1000, .block_tokens = 16}, 128);
  EXPECT_EQ(policy.classes[0].max_sequence_tokens, 128);
  EXPECT_EQ(policy.classes[1].max_sequence_tokens, 128);
}

TEST(ResolvePolicy, GuaranteesNeverExceedThePoolHoweverSmallItIs) {
  for (std::int32_t blocks = 1; blocks < 40; ++blocks) {
    const Policy policy = ResolvePolicy(ServerConfig(), {.num_blocks = blocks, .block_tokens = 16}, 128);
    std::int64_t guaranteed = 0;
    for (const ClassPolicy& c : policy.classes) {
      guaranteed += c.kv_guarantee_blocks;
      EXPECT_LE(c.ceiling_blocks(), blocks);
    }
    EXPECT_LE(guaranteed, blocks);
    EXPECT_EQ(policy.classes[1].ceiling_blocks(), blocks) << "batch may have whatever is idle";
  }
}

TEST(ResolvePolicy, ALocalCommandHasThePoolToItself) {
  ServerConfig config;
  config.classes = LocalClasses();
  const Policy policy = ResolvePolicy(config, {.num_blocks = 7, .block_tokens = 16}, 128);
  ASSERT_EQ(policy.classes.size(), 1U);
  EXPECT_EQ(policy.classes[0].kv_guarantee_blocks, 7);
  EXPECT_EQ(policy.classes[0].overload, Overload::kQueue);
}

}  // namespace
}  // namespace berth
