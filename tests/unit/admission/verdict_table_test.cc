// The verdict table, row by row: what happens to a request, the reason told, the limit named, and whether coming back
// can help. The statuses are the frontend's (refusal_status_test); what needs a model or a prompt is the engine's.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "admission/entry_desk.h"
#include "admission_fixture.h"

namespace berth {
namespace {

class VerdictTable;

struct VerdictRow {
  std::string name;
  std::function<std::optional<Refusal>(VerdictTable*)> ask;
  RefusalReason reason;
  std::string limit_name;
  std::int64_t limit = 0;
  std::int64_t asked = 0;
  bool come_back = false;
};

void PrintTo(const VerdictRow& row, std::ostream* out) { *out << row.name; }

class VerdictTable : public AdmissionTest, public testing::WithParamInterface<VerdictRow> {
 public:
  using AdmissionTest::Add;
  using AdmissionTest::admission;
  using AdmissionTest::now;
  using AdmissionTest::Plan;
  using AdmissionTest::policy;
  using AdmissionTest::Request;
  using AdmissionTest::Submit;
  using AdmissionTest::view;

  void SetUp() override {
    ClassPolicy interactive = Class("interactive", 10, 0, false, 100, 4);
    interactive.max_sequence_tokens = 50;
    interactive.max_output_tokens = 40;
    ClassPolicy batch = Class("batch", 4, 16, true, 1, 0);
    Use(20, 8, {interactive, batch});
  }

  void Change(const std::function<void(Policy*)>& change) {
    change(&policy);
    admission->SetPolicy(policy);
  }

  std::optional<Refusal> Enter(const Arrival& arrival, bool draining = false) {
    EntryDesk desk(policy);
    desk.SetRetryAfter(0, Seconds(3));
    if (draining) desk.StartDraining();
    return desk.Enter(arrival);
  }

  // What the next plan, or one of those after it, tells a request that was taken in.
  std::optional<Refusal> Ending(RequestKey key) {
    for (int i = 0; i < 20; ++i) {
      const AdmissionPlan& plan = Plan();
      for (const auto* endings : {&plan.end, &plan.too_often}) {
        for (const auto& ending : *endings) {
          if (ending.key == key) return ending.refusal;
        }
      }
    }
    return std::nullopt;
  }
};

TEST_P(VerdictTable, TellsReasonLimitAndWhetherToComeBack) {
  const VerdictRow& row = GetParam();
  const std::optional<Refusal> refusal = row.ask(this);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_STREQ(RefusalReasonName(refusal->reason), RefusalReasonName(row.reason));
  EXPECT_EQ(refusal->limit_name, row.limit_name);
  EXPECT_EQ(refusal->limit, row.limit);
  EXPECT_EQ(refusal->asked, row.asked);
  EXPECT_EQ(refusal->retry_after.has_value(), row.come_back);
  EXPECT_FALSE(refusal->message.empty());
  EXPECT_EQ(refusal->message.find('\n'), std::string::npos) << "one line";
}

const VerdictRow kRows[] = {
    {"NBelowOne",
     [](VerdictTable* t) {
       return t->Enter({0, 0, 0, false, 1});
     },
     RefusalReason::kInvalidRequest, "max_running_sequences", 8, 0},
    {"NBeyondTheMachine",
     [](VerdictTable* t) {
       return t->Enter({0, 0, 9, false, 1});
     },
     RefusalReason::kInvalidRequest, "max_running_sequences", 8, 9},
    {"UnknownClass",
     [](VerdictTable* t) {
       return t->Enter({2, 0, 1, false, 1});
     },
     RefusalReason::kUnknownClass, ""},
    {"ClassNotAllowed",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->tenants[0].classes = {1}; });
       return t->Enter({0, 0, 1, false, 1});
     },
     RefusalReason::kClassNotAllowed, ""},
    {"ClassOnHold",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[0].stop = ClassStop::kHold; });
       return t->Enter({0, 0, 1, false, 1});
     },
     RefusalReason::kClassOnHold, "", 0, 0, true},
    {"DuplicateRequestId",
     [](VerdictTable* t) {
       return t->Enter({0, 0, 1, true, 1});
     },
     RefusalReason::kDuplicateRequestId, ""},
    {"Draining",
     [](VerdictTable* t) {
       return t->Enter({0, 0, 1, false, 1}, true);
     },
     RefusalReason::kDraining, "", 0, 0, true},
    {"TooManyBytesForTheClass",
     [](VerdictTable* t) {
       return t->Enter({0, 0, 1, false, 50});
     },
     RefusalReason::kRequestTooLarge, "max_sequence_tokens", 50, 51},
    {"LongerThanTheClassAllows", [](VerdictTable* t) { return t->Submit(t->Request(0, 50)); },
     RefusalReason::kRequestTooLarge, "max_sequence_tokens", 50, 51},
    {"MoreOutputThanTheClassAllows", [](VerdictTable* t) { return t->Submit(t->Request(0, 41)); },
     RefusalReason::kRequestTooLarge, "max_output_tokens", 40, 41},
    {"MoreBlocksThanTheClassCanEverHave", [](VerdictTable* t) { return t->Submit(t->Request(0, 11)); },
     RefusalReason::kRequestTooLarge, "kv_blocks", 10, 11},
    {"MoreSequencesThanTheClassCanEverHave",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[1].slot_guarantee = 2; });
       AdmissionRequest request = t->Request(0, 1);
       request.n = 7;  // 4 guaranteed and 2 common
       return t->Submit(request);
     },
     RefusalReason::kRequestTooLarge, "running_sequences", 6, 7},
    {"MoreBlocksThanTheTenantMayReserve",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->tenants[0].max_kv_blocks = 3; });
       return t->Submit(t->Request(0, 4));
     },
     RefusalReason::kRequestTooLarge, "max_kv", 3, 4},
    {"MoreTokensThanTheTenantsBurst",
     [](VerdictTable* t) {
       t->Change([](Policy* p) {
         p->tenants[0].tokens_per_minute = 600;
         p->tenants[0].burst_tokens = 5;
       });
       return t->Submit(t->Request(0, 5));
     },
     RefusalReason::kRequestTooLarge, "burst_tokens", 5, 6},
    {"TenantHasItsMostRequests",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->tenants[0].max_concurrent_requests = 1; });
       t->Add(0, 1);
       return t->Submit(t->Request(0, 1));
     },
     RefusalReason::kTenantQuotaExceeded, "max_concurrent_requests", 1, 2, true},
    {"TenantIsOverItsTokenRate",
     [](VerdictTable* t) {
       t->Change([](Policy* p) {
         p->tenants[0].tokens_per_minute = 60;
         p->tenants[0].burst_tokens = 8;
       });
       t->Add(0, 5);
       return t->Submit(t->Request(0, 5));
     },
     RefusalReason::kTenantQuotaExceeded, "tokens_per_minute", 60, 6, true},
    {"ClassIsFullAndRejects",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[0].overload = Overload::kReject; });
       t->Add(0, 8);
       t->Plan();
       return t->Ending(t->Add(0, 5));
     },
     RefusalReason::kKvCapacityExhausted, "class_kv_blocks", 10, 5, true},
    {"PoolIsFullAndTheClassRejects",
     [](VerdictTable* t) {
       t->Change([](Policy* p) {
         p->classes[1].overload = Overload::kReject;
         p->classes[1].kv_borrowing_limit_blocks = 40;
       });
       t->Add(1, 18);
       t->Plan();
       return t->Ending(t->Add(1, 5));
     },
     RefusalReason::kKvCapacityExhausted, "kv_blocks", 20, 5, true},
    {"SlotsAreFullAndTheClassRejects",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[1].overload = Overload::kReject; });
       for (int i = 0; i < 8; ++i) t->Add(1, 1);
       t->Plan();
       return t->Ending(t->Add(1, 1));
     },
     RefusalReason::kKvCapacityExhausted, "running_sequences", 8, 1, true},
    {"QueueHasItsMostRequests",
     [](VerdictTable* t) {
       EntryDesk desk(t->policy);
       for (int i = 0; i < 64; ++i) EXPECT_FALSE(desk.Enter({0, 0, 1, false, 1}).has_value());
       desk.SetRetryAfter(0, Seconds(3));
       return desk.Enter({0, 0, 1, false, 1});
     },
     RefusalReason::kQueueFull, "queue.max_requests", 64, 65, true},
    {"QueueHoldsItsMostTokens",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[0].max_queued_tokens = 10; });
       t->Add(0, 6);
       return t->Submit(t->Request(0, 3));
     },
     RefusalReason::kQueueFull, "queue.max_tokens", 10, 11, true},
    {"AllQueuesHoldTheirMostRequests",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->max_queued_requests = 1; });
       t->Add(0, 1);
       return t->Submit(t->Request(0, 1));
     },
     RefusalReason::kQueueFull, "server.max_queued_requests", 1, 2, true},
    {"WaitedTooLong",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[0].max_wait = Seconds(3); });
       t->Add(0, 10);
       t->Plan();
       return t->Ending(t->Add(0, 10));
     },
     RefusalReason::kQueueTimeout, "queue.max_wait", 3000, 3000, true},
    {"ShedWhenItArrives",
     [](VerdictTable* t) {
       t->Change([](Policy* p) {
         p->max_queued_requests = 1;
         for (ClassPolicy& c : p->classes) c.overload = Overload::kShedLowest;
       });
       t->Add(0, 1);
       return t->Submit(t->Request(1, 1));
     },
     RefusalReason::kShed, "server.max_queued_requests", 1, 2, true},
    {"ShedForAnother",
     [](VerdictTable* t) {
       t->Change([](Policy* p) {
         p->max_queued_requests = 1;
         for (ClassPolicy& c : p->classes) c.overload = Overload::kShedLowest;
       });
       const RequestKey low = t->Add(1, 1);
       t->Add(0, 1);
       return t->Ending(low);
     },
     RefusalReason::kShed, "server.max_queued_requests", 1, 2, true},
    {"CannotBeUsefulBeforeItsDeadline",
     [](VerdictTable* t) {
       t->view.steps[0] = 20;
       t->Add(0, 10);
       t->Plan();
       AdmissionRequest request = t->Request(0, 10);
       request.deadline = At(t->now + 10.0);
       request.needed_time = Seconds(2);
       return t->Submit(request);  // 10 blocks for 20 more steps of a second are ahead, of the 10 it can reach
     },
     RefusalReason::kDeadlineInfeasible, ""},
    {"DeadlineHasPassed",
     [](VerdictTable* t) {
       AdmissionRequest request = t->Request(0, 1);
       request.deadline = At(t->now);
       return t->Submit(request);
     },
     RefusalReason::kDeadlineExceeded, ""},
    {"PreemptedTooOften",
     [](VerdictTable* t) {
       t->Change([](Policy* p) { p->classes[1].max_preemptions = 1; });
       const RequestKey large = t->Add(1, 15);
       t->Plan();
       const RequestKey claim = t->Add(0, 10);
       t->Plan();
       t->admission->Finish(claim, At(t->now), 0);
       t->Plan();
       t->Add(0, 10);
       return t->Ending(large);
     },
     RefusalReason::kPreemptedTooOften, "max_preemptions", 1, 2, true},
    {"ThePolicyLeavesAQueuedRequestTooLittle",
     [](VerdictTable* t) {
       const RequestKey queued = t->Add(0, 10);
       t->Change([](Policy* p) { p->classes[0].kv_guarantee_blocks = 8; });
       return t->Ending(queued);
     },
     RefusalReason::kRequestTooLarge, "kv_blocks", 8, 10},
    {"ClassDrainsWhileItWaits",
     [](VerdictTable* t) {
       const RequestKey queued = t->Add(0, 10);
       t->Change([](Policy* p) { p->classes[0].stop = ClassStop::kDrain; });
       return t->Ending(queued);
     },
     RefusalReason::kClassOnHold, "", 0, 0, true},
    {"DeviceFault",
     [](VerdictTable* t) {
       const RequestKey running = t->Add(0, 1);
       t->Plan();
       t->admission->Cancel(running, RefusalReason::kBackendFault);
       return t->Ending(running);
     },
     RefusalReason::kBackendFault, ""},
    {"CancelledByItsClient",
     [](VerdictTable* t) {
       const RequestKey queued = t->Add(0, 1);
       t->admission->Cancel(queued);
       return t->Ending(queued);
     },
     RefusalReason::kCancelledByClient, ""},
};

INSTANTIATE_TEST_SUITE_P(Row, VerdictTable, testing::ValuesIn(kRows), [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace berth
