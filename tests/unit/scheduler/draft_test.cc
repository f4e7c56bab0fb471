// A step that was drafted while the one before it ran is the step that would have been planned without a draft.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "driven_scheduler.h"
#include "fakes/allocation_counter.h"
#include "fakes/step_digest.h"

namespace berth {
namespace {

using test::Ask;
using test::Prompt;

class Draft : public DrivenScheduler {
 protected:
  // Runs the same things with and without drafts; `script` must decide alike both times. What each step did.
  template <typename Script>
  std::vector<std::uint64_t> Steps(bool with_drafts, const KvPoolShape& shape, const Script& script) {
    Use(shape, 24);
    drafts = with_drafts;
    std::vector<std::uint64_t> digests;
    on_plan = [&](const StepPlan& planned) { digests.push_back(test::DigestOf(planned)); };
    script();
    for (const auto& [key, request] : requests) scheduler->Remove(key);
    requests.clear();
    return digests;
  }
  template <typename Script>
  void ExpectTheSame(const KvPoolShape& shape, const Script& script) {
    const auto without = Steps(false, shape, script);
    const auto with = Steps(true, shape, script);
    EXPECT_EQ(with, without);
    EXPECT_GT(with.size(), 3U);
  }
};

TEST_F(Draft, PlansTheSameStepsOfPrefillsAndDecodes) {
  ExpectTheSame({64, 4}, [&] {
    for (RequestKey key = 0; key < 5; ++key) {
      Add(key, Ask(0, Prompt(7 + 9 * key, static_cast<TokenId>(100 * key)), 12));
      Commit({}, {key});
      Step();
    }
    for (int i = 0; i < 20; ++i) Step();
  });
}

TEST_F(Draft, PlansTheSameStepsOfGroupsWhoseChoicesPartAndEnd) {
  ExpectTheSame({64, 4}, [&] {
    Add(0, Ask(0, Prompt(10), 12, 3));
    Add(1, Ask(0, Prompt(8, 100), 12, 2));
    Add(2, Ask(0, Prompt(5, 200), 12));
    Commit({}, {0, 1, 2});
    for (int i = 0; i < 14; ++i) {
      Step();
      if (i == 0) End(0, 0);  // before its copy is made
      if (i == 3) End(1, 1);
      if (i == 5) End(2, 0);
    }
  });
}

TEST_F(Draft, PlansTheSameStepsAroundPreemptionsSwapsAndStarts) {
  ExpectTheSame({20, 4, 40}, [&] {
    for (const RequestKey key : {0, 1, 2}) Add(key, Ask(0, Prompt(10, static_cast<TokenId>(100 * key)), 20));
    Commit({}, {0, 1});
    for (int i = 0; i < 4; ++i) Step();
    Commit({1}, {2});
    for (int i = 0; i < 4; ++i) Step();
    Commit({0}, {1});
    for (int i = 0; i < 4; ++i) Step();
    Commit({2}, {0});
    for (int i = 0; i < 20; ++i) Step();
  });
}

TEST_F(Draft, OfAStepThatFailedIsForgotten) {
  ExpectTheSame({64, 4}, [&] {
    for (const RequestKey key : {0, 1}) {
      Add(key, Ask(0, Prompt(6, static_cast<TokenId>(100 * key)), 12));
      Commit({}, {key});
      Step();
    }
    backend->FailNextStep();
    EXPECT_FALSE(Step());
    for (const RequestKey key : dropped) {
      scheduler->Remove(key);
      requests.erase(key);
    }
    Add(2, Ask(0, Prompt(6, 200), 12));
    Commit({}, {2});
    for (int i = 0; i < 4; ++i) Step();
  });
}

TEST_F(Draft, KnowsWhichTokensAreBannedInItsStep) {
  static const std::vector<TokenId> banned = {3};
  static const std::vector<TokenId> early_banned = {3, 4};
  ExpectTheSame({64, 4}, [&] {
    Add(0, Ask(0, Prompt(6), 12), [&](ScheduledRequest* request) {
      request->min_output_tokens = 4;
      request->banned = banned;
      request->early_banned = early_banned;
      request->logprobs = 2;
    });
    Commit({}, {0});
    for (int i = 0; i < 8; ++i) {
      Step();
      EXPECT_EQ(step.logit_rows[0].sampling.banned.size(), i < 4 ? 2U : 1U) << "token " << i;
      EXPECT_EQ(step.logit_rows[0].top_logprobs, 2);
    }
  });
}

TEST_F(Draft, AllocatesNothingOnceItRuns) {
  Use({400, 4}, 64);
  for (RequestKey key = 0; key < 8; ++key) {
    Add(key, Ask(0, Prompt(5, static_cast<TokenId>(100 * key)), 150));
    Commit({}, {key});
  }
  std::int64_t before = 0;
  for (int i = 0; i < 140; ++i) {
    if (i == 100) before = test::Allocations();
    StepResult& result = scratch;
    const StepPlan& planned = scheduler->PlanStep(test::At(0));
    scheduler->DraftStep();
    result.step = planned.step;
    result.logits.assign(planned.logit_rows.size(), {});
    scheduler->ApplyStep(result);
  }
  EXPECT_EQ(test::Allocations(), before);
}

}  // namespace
}  // namespace berth
