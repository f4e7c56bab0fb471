#include "admission/policy_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace berth {
namespace {

Policy Good() {
  Policy policy;
  policy.classes.resize(2);
  policy.classes[0].name = "interactive";
  policy.classes[0].kv_guarantee_blocks = 60;
  policy.classes[0].slot_guarantee = 4;
  policy.classes[1].name = "batch";
  policy.classes[1].kv_guarantee_blocks = 40;
  policy.classes[1].slot_guarantee = 4;
  policy.tenants.resize(1);
  policy.tenants[0].name = "default";
  policy.max_running_sequences = 8;
  return policy;
}

TEST(ValidatePolicy, TakesAPolicyThatThePoolCanKeep) { EXPECT_TRUE(ValidatePolicy(Good(), {100, 16}).ok()); }

TEST(ValidatePolicy, RefusesWholeWhatItCannotKeepAndNamesTheKey) {
  struct Case {
    std::function<void(Policy*)> damage;
    std::string named;
  };
  const Case cases[] = {
      {[](Policy* p) { p->classes[0].kv_guarantee_blocks = 61; }, "classes.*.kv_guarantee"},
      {[](Policy* p) { p->classes[1].slot_guarantee = 5; }, "classes.*.slot_guarantee"},
      {[](Policy* p) { p->default_class = 2; }, "default_class"},
      {[](Policy* p) { p->classes[1].default_output_tokens = 0; }, "classes.batch.default_output_tokens"},
      {[](Policy* p) { p->max_batched_tokens = 7; }, "scheduler.max_batched_tokens"},
      {[](Policy* p) { p->classes[1].max_preemptions = 0; }, "classes.batch.max_preemptions"},
      {[](Policy* p) { p->classes[1].name = "interactive"; }, "classes.interactive"},
      {[](Policy* p) { p->classes[1].prefill_min_share = 1.5; }, "scheduler.prefill_min_share.batch"},
      {[](Policy* p) { p->classes[0].max_wait = Duration(0); }, "classes.interactive.queue.max_wait"},
      {[](Policy* p) { p->classes[0].removed = true; }, "default_class"},
      {[](Policy* p) {
         p->default_class = 1;
         p->classes[0].removed = true;
       },
       "classes.interactive"},
      {[](Policy* p) {
         p->default_class = 1;
         p->classes[0].kv_guarantee_blocks = p->classes[0].slot_guarantee = 0;
         p->classes[0].kv_borrowing_limit_blocks = 1;
         p->classes[0].removed = true;
       },
       "classes.interactive"},
      {[](Policy* p) { p->tenants[0].weight = 0.0; }, "tenants.default.weight"},
      {[](Policy* p) { p->tenants[0].max_kv_blocks = 0; }, "tenants.default.max_kv"},
      {[](Policy* p) { p->tenants[0].classes = {2}; }, "tenants.default.classes"},
      {[](Policy* p) { p->tenants.clear(); }, "tenants"},
      {[](Policy* p) { p->classes.clear(); }, "classes"},
  };
  for (const Case& c : cases) {
    Policy policy = Good();
    c.damage(&policy);
    const absl::Status status = ValidatePolicy(policy, {100, 16});
    EXPECT_FALSE(status.ok()) << c.named;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(c.named));
  }
}

TEST(DefaultSlotGuarantee, IsTheShareOfThePoolAndAtLeastOne) {
  EXPECT_EQ(DefaultSlotGuarantee(60, 100, 64), 38);
  EXPECT_EQ(DefaultSlotGuarantee(1, 1000, 64), 1);
  EXPECT_EQ(DefaultSlotGuarantee(0, 1000, 64), 0);
}

}  // namespace
}  // namespace berth
