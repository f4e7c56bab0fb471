#include "config/resolve_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "admission/policy_check.h"
#include "policy_cases.h"

namespace berth {
namespace {

using ::testing::ElementsAre;

constexpr char kWhole[] = R"(version: 1
scheduler: {max_running_sequences: 32, max_batched_tokens: 512, prefill_min_share: {batch: 12.5%}}
server: {max_queued_requests: 50, max_queued_tokens: 100000}
classes:
  interactive:
    {priority: 100, kv_guarantee: 50%, kv_lending_limit: 20, slot_guarantee: 5, max_sequence_tokens: 512,
     max_output_tokens: 300, default_output_tokens: 100, overload: reject, queue: {max_requests: 10, max_tokens: 5000, max_wait: 2s},
     deadline: {default: 30s, require: useful_output, useful_tokens: 8}, slo: {inter_token_latency: 200ms}}
  batch: {kv_guarantee: 30kB, kv_borrowing_limit: 33.3%, preemptible: true, max_preemptions: 7, stop: hold}
tenants:
  default: {classes: [batch, interactive]}
  acme: {weight: 2.5, max_concurrent_requests: 3, max_kv: 39.5%, tokens_per_minute: 6000, classes: [batch]}
default_class: batch
)";

Policy Resolved(const std::string& yaml, const PolicyContext& context) {
  Diagnostics diagnostics("p.yaml");
  const ServerConfig config = ParsePolicy(yaml, &diagnostics);
  const std::optional<Policy> policy = ResolvePolicy(config, context, &diagnostics);
  EXPECT_TRUE(policy.has_value());
  for (const std::string& line : diagnostics.Lines()) ADD_FAILURE() << line;
  return policy.value_or(Policy());
}

TEST(ResolvePolicy, EveryKeyReachesItsPlace) {
  const Policy policy = Resolved(kWhole, test::SmallPool());
  EXPECT_EQ(policy.max_running_sequences, 32);
  EXPECT_EQ(policy.max_batched_tokens, 512);
  EXPECT_EQ(policy.max_queued_requests, 50);
  EXPECT_EQ(policy.max_queued_tokens, 100'000);

  EXPECT_EQ(policy.default_class, 1);

  ASSERT_EQ(policy.classes.size(), 2u);
  const ClassPolicy& interactive = policy.classes[0];
  EXPECT_EQ(interactive.name, "interactive");
  EXPECT_EQ(interactive.priority, 100);
  EXPECT_EQ(interactive.kv_guarantee_blocks, 50);
  EXPECT_EQ(interactive.kv_borrowing_limit_blocks, 0);
  EXPECT_EQ(interactive.kv_lending_limit_blocks, 20);
  EXPECT_EQ(interactive.slot_guarantee, 5);
  EXPECT_FALSE(interactive.preemptible);
  EXPECT_EQ(interactive.max_sequence_tokens, 512);
  EXPECT_EQ(interactive.max_output_tokens, 300);
  EXPECT_EQ(interactive.default_output_tokens, 100);
  EXPECT_EQ(interactive.default_timeout, std::chrono::seconds(30));
  EXPECT_EQ(interactive.overload, Overload::kReject);
  EXPECT_EQ(interactive.max_queued_requests, 10);
  EXPECT_EQ(interactive.max_queued_tokens, 5000);
  EXPECT_EQ(interactive.max_wait, std::chrono::seconds(2));
  EXPECT_EQ(interactive.require, DeadlineRequirement::kUsefulOutput);
  EXPECT_EQ(interactive.useful_tokens, 8);
  EXPECT_EQ(interactive.inter_token_slo, std::chrono::milliseconds(200));
  EXPECT_EQ(interactive.prefill_min_share, 0.0);
  EXPECT_EQ(interactive.stop, ClassStop::kNone);

  const ClassPolicy& batch = policy.classes[1];
  EXPECT_EQ(batch.kv_guarantee_blocks, 30);        // 30,000 bytes
  EXPECT_EQ(batch.kv_borrowing_limit_blocks, 34);  // rounds up
  EXPECT_EQ(batch.kv_lending_limit_blocks, kUnlimited);
  EXPECT_EQ(batch.slot_guarantee, 32 * 30 / 100);
  EXPECT_TRUE(batch.preemptible);
  EXPECT_EQ(batch.max_preemptions, 7);
  EXPECT_EQ(batch.max_sequence_tokens, 2048);  // the context
  EXPECT_EQ(batch.overload, Overload::kQueue);
  EXPECT_EQ(batch.max_wait, std::chrono::seconds(60));
  EXPECT_EQ(batch.prefill_min_share, 0.125);
  EXPECT_EQ(batch.stop, ClassStop::kHold);

  ASSERT_EQ(policy.tenants.size(), 2u);
  EXPECT_THAT(*policy.tenants[0].classes, ElementsAre(0, 1));
  EXPECT_EQ(policy.tenants[0].max_kv_blocks, kUnlimited);
  EXPECT_EQ(policy.tenants[0].tokens_per_minute, std::nullopt);
  EXPECT_EQ(policy.tenants[1].name, "acme");
  EXPECT_EQ(policy.tenants[1].weight, 2.5);
  EXPECT_EQ(policy.tenants[1].max_concurrent_requests, 3);
  EXPECT_EQ(policy.tenants[1].max_kv_blocks, 40);  // rounds up
  EXPECT_EQ(policy.tenants[1].tokens_per_minute, 6000.0);
  EXPECT_EQ(policy.tenants[1].burst_tokens, 6000.0);  // one minute's
  EXPECT_THAT(*policy.tenants[1].classes, ElementsAre(1));
}

TEST(ResolvePolicy, WithoutAFileTwoClassesAndOneTenant) {
  PolicyContext context;
  context.pool = {10'000, 16};
  Diagnostics diagnostics("");
  const std::optional<Policy> policy = ResolvePolicy(ServerConfig(), context, &diagnostics);
  ASSERT_TRUE(policy.has_value());
  EXPECT_THAT(diagnostics.Lines(), ElementsAre());
  ASSERT_EQ(policy->classes.size(), 2u);
  EXPECT_EQ(policy->classes[0].name, "interactive");
  EXPECT_EQ(policy->classes[0].kv_guarantee_blocks, 6000);
  EXPECT_EQ(policy->classes[0].slot_guarantee, 38);
  EXPECT_EQ(policy->classes[0].overload, Overload::kReject);
  EXPECT_EQ(policy->default_class, 0);
  EXPECT_EQ(policy->classes[1].name, "batch");
  EXPECT_EQ(policy->classes[1].ceiling_blocks(), 10'000);
  EXPECT_EQ(policy->classes[1].max_sequence_tokens, kUnlimited);  // no context is known
  EXPECT_EQ(policy->classes[1].slot_guarantee, 12);
  EXPECT_TRUE(policy->classes[1].preemptible);
  ASSERT_EQ(policy->tenants.size(), 1u);
  EXPECT_EQ(policy->tenants[0].name, "default");
}

TEST(ResolvePolicy, ClassesThatAFileListsReplaceTheDefaultOnesWhole) {
  const Policy policy =
      Resolved("version: 1\nclasses: {gold: {kv_guarantee: 100%}}\ndefault_class: gold\n", test::SmallPool());
  ASSERT_EQ(policy.classes.size(), 1u);
  EXPECT_EQ(policy.classes[0].priority, 0);
  EXPECT_EQ(policy.tenants[0].classes, std::nullopt);
}

TEST(ResolvePolicy, BytesNeedAModel) {
  PolicyContext context = test::SmallPool();
  context.block_bytes = 0;
  EXPECT_THAT(
      test::ResolveFindings("version: 1\n"
                            "classes: {interactive: {kv_guarantee: 1MiB}}\n"
                            "tenants: {default: {max_kv: 1MiB}}\n",
                            context),
      ElementsAre("p.yaml:2:25: error: classes.interactive.kv_guarantee: 1MiB cannot be counted in blocks without "
                  "a model; give one, or write blocks or %",
                  "p.yaml:3:21: error: tenants.default.max_kv: 1MiB cannot be counted in blocks without a model; "
                  "give one, or write blocks or %"));
}

TEST(ResolvePolicy, WhatComesOutIsAlwaysAPolicyThatAdmissionTakes) {
  int resolved = 0;
  for (std::int32_t blocks = 1; blocks < 500; ++blocks) {
    PolicyContext context = test::SmallPool();
    context.pool.num_blocks = blocks;
    Diagnostics diagnostics("");
    const std::optional<Policy> policy = ResolvePolicy(ServerConfig(), context, &diagnostics);
    EXPECT_EQ(policy.has_value(), diagnostics.ok());
    if (!policy) continue;
    ++resolved;
    EXPECT_TRUE(ValidatePolicy(*policy, context.pool).ok()) << blocks;
  }
  EXPECT_EQ(resolved, 498);  // in a pool of one block nothing is guaranteed to interactive
}

}  // namespace
}  // namespace berth
