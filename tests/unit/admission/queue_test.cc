// The order in which waiting requests start.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "admission_fixture.h"

namespace berth {
namespace {

class Queue : public AdmissionTest {};

TEST_F(Queue, EarliestDeadlineFirstThenArrival) {
  Use(4, 8, {Class("c", 4, 0, false, 1, 8)});
  AdmissionRequest late = Request(0, 2);
  late.deadline = At(1000);
  AdmissionRequest soon = Request(0, 2);
  soon.deadline = At(500);
  AdmissionRequest same = Request(0, 2);
  same.deadline = At(500);
  for (const auto& r : {late, soon, same}) ASSERT_FALSE(Submit(r).has_value());
  EXPECT_EQ(Started(), (Keys{soon.key, same.key}));
}

TEST_F(Queue, TenantsShareByBlockSecondsNotByRequests) {
  Use(100, 200, {Class("c", 100, 0, false, 1, 200)});
  policy.classes[0].max_queued_requests = 10000;
  policy.tenants[1].weight = 2.0;
  admission->SetPolicy(policy);
  // Tenant 0 asks for 20 blocks at a time, tenant 1 for one block and has twice the weight; both always have work
  // waiting.
  double service[2] = {0.0, 0.0};
  std::vector<std::pair<RequestKey, int>> running;
  for (int plan = 0; plan < 4000; ++plan) {
    while (admission->waiting(0) < 300) {
      for (int i = 0; i < 10; ++i) Add(0, 20, 0);
      for (int i = 0; i < 200; ++i) Add(0, 1, 1);
    }
    for (const auto& start : Plan().admit) running.emplace_back(start.key, plan + 10);
    for (const auto& [key, end] : running) {
      const RequestState* r = admission->Find(key);
      service[r->request.tenant] += static_cast<double>(r->entry.blocks);
    }
    std::erase_if(running, [&](const auto& r) {
      if (r.second > plan + 1) return false;
      Finish(r.first);
      return true;
    });
  }
  EXPECT_NEAR(service[1] / service[0], 2.0, 0.1);
}

TEST_F(Queue, ATenantThatIdledEarnsNothing) {
  Use(10, 20, {Class("c", 10, 0, false, 1, 20)});
  std::vector<RequestKey> running;
  for (int plan = 0; plan < 50; ++plan) {
    Add(0, 10, 0);
    const Keys started = Started();
    if (!started.empty()) Finish(started[0]);
  }
  // Tenant 1 comes late: from now on they take turns, it does not get all the service it never asked for.
  Keys order;
  for (int i = 0; i < 6; ++i) Add(0, 10, 0);
  for (int i = 0; i < 6; ++i) Add(0, 10, 1);
  int tenant1 = 0;
  for (int i = 0; i < 6; ++i) {
    const Keys started = Started();
    ASSERT_EQ(started.size(), 1U);
    tenant1 += admission->Find(started[0])->request.tenant == 1 ? 1 : 0;
    Finish(started[0]);
  }
  EXPECT_GE(tenant1, 2);
  EXPECT_LE(tenant1, 4);
}

TEST_F(Queue, ASmallRequestGoesBeforeAHugeHeadOnlyIfItLeavesItsStart) {
  Use(10, 20, {Class("c", 0, 10, false, 1, 0)});
  const RequestKey running = Add(0, 6);
  view.steps[running] = 8;
  Plan();
  const RequestKey head = Add(0, 9);
  const RequestKey longer = Add(0, 2);   // would hold 2 of 10 when the head's 9 are due
  const RequestKey beside = Add(0, 1);   // fits beside the head
  const RequestKey shorter = Add(0, 3);  // is gone by then
  view.steps[longer] = 50;
  view.steps[shorter] = 5;
  view.steps[beside] = 50;
  EXPECT_EQ(Started(), (Keys{beside, shorter}));
  Finish(shorter);
  Finish(running);
  EXPECT_EQ(Started(), (Keys{head})) << "the head starts within its computed bound";
  EXPECT_NE(admission->Find(longer), nullptr);
}

TEST_F(Queue, ATenantAtItsQuotaIsPassedOverWithEverythingLaterOfIt) {
  Use(20, 20, {Class("c", 20, 0, false, 1, 20)});
  policy.tenants[0].max_kv_blocks = 8;
  admission->SetPolicy(policy);
  const RequestKey first = Add(0, 6, 0);
  EXPECT_EQ(Started(), Keys{first});
  Add(0, 4, 0);                           // beyond the quota
  const RequestKey small = Add(0, 1, 0);  // would fit it, but comes later
  const RequestKey other = Add(0, 5, 1);
  EXPECT_EQ(Started(), Keys{other});
  EXPECT_EQ(admission->Find(small)->phase, RequestState::Phase::kQueued);
}

// A class of higher priority could keep the pool busy for ever.
TEST_F(Queue, ALongWaitingClassIsPromotedAndItsStartBinds) {
  ClassPolicy low = Class("low", 0, 20, false, 1, 0);
  low.max_wait = Seconds(30);
  Use(20, 40, {Class("high", 0, 20, false, 9, 0), low});
  RequestKey running = Add(0, 15);
  view.steps[running] = 4;
  Plan();
  const RequestKey waits = Add(1, 18);
  std::int64_t started_at = -1;
  for (int plan = 1; plan < 40 && started_at < 0; ++plan) {
    if (plan % 4 == 0 && running >= 0) Finish(std::exchange(running, -1));
    view.steps[Add(0, 15)] = 4;
    for (const RequestKey key : Started()) {
      if (key == waits) started_at = plan;
      running = key;
    }
  }
  EXPECT_GE(started_at, 15) << "not before half of max_wait";
  EXPECT_LE(started_at, 20) << "at the first end after that";
}

}  // namespace
}  // namespace berth
