// What the engine thinks would become of a request.
#include <future>

#include "engine/inbox.h"
#include "engine_fixture.h"

namespace berth::test {
namespace {

using Kind = RequestOutlook::Kind;

class EngineOutlook : public BothWays<> {
 protected:
  RequestOutlook Foresee(const TokenizedRequest& request) {
    const GenerateSpec& spec = request.spec;
    const auto demand = engine->EstimateDemand(spec.service_class, spec.tenant, std::ssize(request.prompt),
                                               spec.sampling.n, spec.stopping);
    std::promise<RequestOutlook> answer;
    engine->Foresee(spec, std::get<KvDemand>(demand),
                    [&answer](RequestOutlook outlook) { answer.set_value(std::move(outlook)); });
    return answer.get_future().get();
  }
};
BERTH_BOTH_WAYS(EngineOutlook);

TEST_P(EngineOutlook, IsThereWhileAStepIsInFlight) {
  StartEngine({.max_running_sequences = 1, .max_queued_requests = 1});
  EXPECT_EQ(Foresee(Request("first", "p", 30)).kind, Kind::kStarts);
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 30));
  backend->WaitForStepAtGate();
  // Its place in the queue is free once the turn that started it is over.
  RequestOutlook second = Foresee(Request("second", "p", 3));
  while (second.kind == Kind::kRefused) second = Foresee(Request("second", "p", 3));
  EXPECT_EQ(second.kind, Kind::kQueues);

  const auto queued = Submit(Request("queued", "p", 3));
  WaitForQueued(1);
  const RequestOutlook third = Foresee(Request("third", "p", 3));
  EXPECT_EQ(third.kind, Kind::kRefused);
  EXPECT_EQ(third.refusal->reason, RefusalReason::kQueueFull);
  backend->OpenGate();
  running->WaitForEnd();
  queued->WaitForEnd();
}

TEST_P(EngineOutlook, OfAnEngineThatDrainsIsARefusal) {
  StartEngine();
  engine->Shutdown(Duration::zero());
  EXPECT_EQ(Foresee(Request("late", "p", 3)).refusal->reason, RefusalReason::kDraining);
}

// Each is answered or dropped; none is kept for an engine that is gone.
TEST_P(EngineOutlook, QuestionsAreBounded) {
  Inbox inbox;
  int answered = 0;
  for (std::size_t i = 0; i < Inbox::kMaxQuestions; ++i) {
    EXPECT_TRUE(inbox.Ask({.spec = {}, .demand = {}, .answer = [&](const RequestOutlook&) { ++answered; }}));
  }
  EXPECT_FALSE(inbox.Ask({.spec = {}, .demand = {}, .answer = [&](const RequestOutlook&) { ++answered; }}));
  Mail mail;
  inbox.WaitAndTake(Duration::zero(), &mail);
  EXPECT_EQ(mail.questions.size(), Inbox::kMaxQuestions);
  EXPECT_TRUE(inbox.Ask({.spec = {}, .demand = {}, .answer = [&](const RequestOutlook&) { ++answered; }}));
  EXPECT_EQ(answered, 0);
}

}  // namespace
}  // namespace berth::test
