#include "cli/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "status_message.h"

namespace berth::cli {
namespace {

using test::Message;

using ::testing::HasSubstr;

PolicyContext PoolOf(std::int32_t blocks) {
  PolicyContext context;
  context.pool = {blocks, 16};
  context.context_tokens = 8192;
  return context;
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
