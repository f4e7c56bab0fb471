// What operators ask of the engine: who lives, who is meant, how well its thread is.
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kPatience = minutes(2);

class Live : public BothWays<> {
 protected:
  // Two classes, two tenants.
  static void TwoOfEach(Policy* policy) {
    ClassPolicy& first = policy->classes[0];
    first.kv_guarantee_blocks = 0;
    first.slot_guarantee = 0;
    first.kv_borrowing_limit_blocks = 16;
    policy->classes.push_back(first);
    policy->classes[1].name = "second";
    policy->tenants.push_back(policy->tenants[0]);
    policy->tenants[1].name = "other";
  }

  TokenizedRequest Of(std::string id, ClassId service_class, TenantId tenant, std::int32_t max_output_tokens = 5) {
    TokenizedRequest request = Request(std::move(id), "ten tokens", max_output_tokens);
    request.spec.service_class = service_class;
    request.spec.tenant = tenant;
    return request;
  }

  static std::vector<std::string> Ids(const LiveList& list) {
    std::vector<std::string> ids;
    for (const LiveRow& row : list.rows) ids.push_back(row.ticket.request_id);
    return ids;
  }

  LiveList List(const LiveFilter& filter = {}, std::size_t most = 100) {
    const std::optional<LiveList> list = engine->ListLive(filter, most, kPatience);
    EXPECT_TRUE(list.has_value());
    return list.value_or(LiveList());
  }
};
BERTH_BOTH_WAYS(Live);

TEST_P(Live, AListTellsWhatEachRequestIsAtInTheOrderOfArrival) {
  StartEngine({.num_blocks = 32, .max_step_tokens = 16, .max_running_sequences = 1, .policy = TwoOfEach});
  EXPECT_TRUE(List().rows.empty());
  backend->CloseGate();
  TokenizedRequest first = Of("first", 0, 1);
  first.spec.deadline = clock.Now() + hours(1);
  const auto running = Submit(std::move(first));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Of("second", 1, 0));
  WaitForQueued(1);
  clock.Advance(seconds(2));

  LiveList list = List();
  ASSERT_EQ(list.rows.size(), 2U);
  EXPECT_EQ(list.left_out, 0);
  const LiveRow& one = list.rows[0];
  EXPECT_EQ(one.ticket.request_id, "first");
  EXPECT_EQ(one.ticket.service_class, 0);
  EXPECT_EQ(one.ticket.tenant, 1);
  EXPECT_EQ(one.state, LiveRow::State::kPrefill);
  EXPECT_EQ(one.age, seconds(2));
  EXPECT_EQ(one.prompt_tokens, 10);
  EXPECT_EQ(one.output_tokens, 0);
  EXPECT_EQ(one.reserved_blocks, 4);
  EXPECT_EQ(one.held_blocks, 3);
  EXPECT_EQ(one.time_left, hours(1) - seconds(2));
  EXPECT_EQ(list.rows[1].ticket.request_id, "second");
  EXPECT_EQ(list.rows[1].state, LiveRow::State::kQueued);
  EXPECT_EQ(list.rows[1].reserved_blocks, 0);
  EXPECT_EQ(list.rows[1].time_left, std::nullopt);

  backend->LetOneStepGo();
  backend->WaitForStepAtGate();
  list = List();
  EXPECT_EQ(list.rows[0].state, LiveRow::State::kDecode);
  EXPECT_EQ(list.rows[0].output_tokens, 1);
  backend->OpenGate();
  running->WaitForEnd();
  queued->WaitForEnd();
  EXPECT_TRUE(List().rows.empty());
}

TEST_P(Live, AListIsFilteredAndBoundedAndCountsTheRest) {
  StartEngine({.max_running_sequences = 1, .max_queued_requests = 400, .policy = TwoOfEach});
  backend->CloseGate();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 300; ++i) sinks.push_back(Submit(Of(std::to_string(i), i % 2, i % 3 == 0 ? 1 : 0)));
  backend->WaitForStepAtGate();
  WaitForQueued(299);
  EXPECT_EQ(Ids(List({}, 3)), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(List({}, 3).left_out, 297);
  EXPECT_EQ(List({}, 1000).rows.size(), 300U);
  EXPECT_EQ(List({}, 0).left_out, 300);
  const LiveList second = List({.service_class = 1, .tenant = 1}, 2);
  EXPECT_EQ(Ids(second), (std::vector<std::string>{"3", "9"}));
  EXPECT_EQ(second.left_out, 48);
  backend->OpenGate();
  for (const auto& sink : sinks) sink->WaitForEnd();
}

TEST_P(Live, AListIsAnsweredWhileRequestsComeAndGo) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16, .max_queued_requests = 64});
  std::atomic<bool> done = false;
  std::thread asker([&] {
    while (!done) EXPECT_TRUE(engine->ListLive({}, 50, kPatience).has_value());
  });
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 8; ++i) sinks.push_back(Submit(Request(std::to_string(i), "p", 5)));
    for (const auto& sink : sinks) EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kLength);
  }
  done = true;
  asker.join();
}

TEST_P(Live, ARequestIsFoundByItsTenantAndIdForAsLongAsItLives) {
  StartEngine({.policy = TwoOfEach});
  backend->CloseGate();
  const auto sink = Submit(Of("mine", 0, 1));
  backend->WaitForStepAtGate();
  EXPECT_EQ(engine->Find(1, "mine"), TicketOf("mine"));
  EXPECT_EQ(engine->Find(0, "mine"), std::nullopt);
  EXPECT_EQ(engine->Find(1, "yours"), std::nullopt);
  backend->OpenGate();
  sink->WaitForEnd();
  EXPECT_EQ(engine->Find(1, "mine"), std::nullopt);
}

TEST_P(Live, ACancelTellsItsReasonAndTheFirstOneHolds) {
  for (const RefusalReason reason : {RefusalReason::kCancelledByOperator, RefusalReason::kSlowReader}) {
    StartEngine();
    backend->CloseGate();
    const auto sink = Submit(Request("victim", "ten tokens", 5));
    backend->WaitForStepAtGate();
    engine->Cancel(TicketOf("victim"), reason);
    engine->Cancel(TicketOf("victim"), RefusalReason::kCancelledByClient);
    backend->OpenGate();
    EXPECT_EQ(sink->WaitForEnd().failure(), reason);
    ExpectFullCapacity();
  }
}

TEST_P(Live, ACancelBeforeItsSubmitKeepsItsReason) {
  StartEngine();
  auto ticket = std::get<QueueTicket>(engine->TakeTicket({.request_id = "early"}));
  engine->Cancel(*engine->Find(0, "early"), RefusalReason::kCancelledByOperator);
  const auto sink = std::make_shared<RecordingSink>();
  engine->Submit(std::move(ticket), Request("early", "p", 5), sink);
  EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByOperator);
}

TEST_P(Live, TheSignsTellAStepInFlightAndWhenAClassGotOn) {
  StartEngine();
  // The thread may be on its way into its first wait.
  while (engine->signs().in_turn_since.has_value()) std::this_thread::yield();
  EXPECT_EQ(engine->signs().in_step_since, std::nullopt);
  ASSERT_EQ(engine->signs().progress.size(), 1U);
  clock.Advance(hours(1));
  const TimePoint came = clock.Now();
  backend->CloseGate();
  const auto sink = Submit(Request("one", "p", 5));
  WaitForStepsAtGate();
  while (engine->signs().in_turn_since.has_value()) std::this_thread::yield();
  EXPECT_EQ(engine->signs().in_step_since, came);
  EXPECT_EQ(engine->signs().progress[0], came) << "its first request starts the clock anew";

  clock.Advance(hours(1));
  EXPECT_EQ(engine->signs().progress[0], came);
  backend->LetOneStepGo();
  WaitForStepsAtGate();
  while (engine->signs().in_turn_since.has_value()) std::this_thread::yield();
  EXPECT_EQ(engine->signs().in_step_since, came + hours(1));
  EXPECT_EQ(engine->signs().progress[0], came + hours(1));
  backend->OpenGate();
  sink->WaitForEnd();
}

TEST_P(Live, AShutdownWithAStepThatNeverEndsComesBack) {
  StartEngine();
  backend->CloseGate();
  const auto sink = Submit(Request("stuck", "p", 5));
  WaitForStepsAtGate();
  EXPECT_FALSE(engine->Shutdown(Duration::zero(), milliseconds(1)));
  EXPECT_FALSE(sink->ended());
  backend->OpenGate();
  EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kDrainTimeout);
  EXPECT_TRUE(engine->Shutdown(Duration::zero(), kPatience));
}

}  // namespace
}  // namespace berth::test
