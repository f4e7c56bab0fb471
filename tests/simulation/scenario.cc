#include "scenario.h"

#include <algorithm>
#include <sstream>

#include "admission/demand.h"
#include "draw.h"
#include "random_policy.h"

namespace berth::simulation {
namespace {

test::LoopRequest MakeRequest(const Scenario& scenario, std::int64_t plan, Draw* draw) {
  const std::int64_t width = scenario.pool.block_tokens;
  const std::int64_t pool = scenario.pool.num_blocks;
  const auto num_classes = static_cast<std::int64_t>(scenario.policy.classes.size());
  test::LoopRequest r;
  // Now and then a class or a tenant that only a policy change will bring, if any.
  r.service_class = static_cast<ClassId>(draw->Between(0, draw->Chance(0.05) ? num_classes : num_classes - 1));
  const ClassPolicy& c = scenario.policy.classes[static_cast<std::size_t>(r.service_class % num_classes)];
  r.tenant = static_cast<TenantId>(draw->Between(0, draw->Chance(0.05) ? 3 : 2));
  // Mostly what the class can have, sometimes anything.
  const std::int64_t ceiling = std::min(pool, c.ceiling_blocks());
  const std::int64_t share = c.preemptible ? ceiling : c.kv_guarantee_blocks;
  const std::int64_t most =
      std::max<std::int64_t>(1, draw->Chance(0.1) ? pool + draw->OneOf({0, 0, pool})
                                                  : draw->OneOf({share, share, ceiling / 2, c.kv_guarantee_blocks}));
  const std::int64_t tokens = std::max<std::int64_t>(2, draw->Between(1, most) * width - draw->Between(0, width - 1));
  // Borrowers run long, so that claims find them.
  r.max_output_tokens = c.preemptible && draw->Chance(0.6)
                            ? tokens - 1
                            : draw->OneOf({1, 1 + tokens / 4, 1 + tokens / 2, std::max<std::int64_t>(1, tokens - 1)});
  const std::int64_t prompt = std::max<std::int64_t>(1, tokens - r.max_output_tokens + 1);
  r.n = draw->Chance(0.7) ? 1 : static_cast<std::int32_t>(draw->Between(2, 4));
  if (draw->Chance(0.01)) r.n = static_cast<std::int32_t>(draw->OneOf({-1, 0, 25}));
  r.seed = static_cast<std::uint64_t>(draw->Between(0, 3));
  r.salt = draw->Chance(0.3) ? static_cast<std::uint64_t>(r.tenant) : 9;
  const std::int64_t family = draw->Between(0, 3);
  const std::int64_t common = draw->OneOf({prompt, prompt / 2, prompt - prompt % width});
  for (std::int64_t p = 0; p < prompt; ++p) {
    const std::int64_t token = p < common ? 1000 + 100 * family + p % 97 : draw->Between(0, 999);
    r.prompt.push_back(static_cast<TokenId>(token));
  }
  const TimePoint arrival = TimePoint(Plans(plan));
  if (draw->Chance(0.15)) {
    r.deadline = arrival + Plans(draw->OneOf({3, 20, 60}));
    r.judge_deadline = draw->Chance(0.5);
  }
  if (draw->Chance(0.05)) r.prompt_logprobs = static_cast<std::int32_t>(draw->OneOf({0, 2}));
  return r;
}

// Two classes that pull at the same blocks: claims come in waves, borrowers within their guarantee's size run long.
void MakeTugOfWar(Scenario* scenario, Draw* draw) {
  const std::int64_t pool = scenario->pool.num_blocks;
  Policy& policy = scenario->policy;
  policy.classes.resize(2);
  for (TenantPolicy& t : policy.tenants) t.classes.reset();
  policy.max_running_sequences = 24;
  policy.max_batched_tokens = 24 + draw->OneOf({0, 16, 64});
  for (std::size_t i = 0; i < 2; ++i) {
    ClassPolicy& c = policy.classes[i];
    c = ClassPolicy();
    c.name = i == 0 ? "claims" : "borrows";
    c.priority = i == 0 ? 10 : 1;
    c.kv_guarantee_blocks = pool / 2;
    c.kv_borrowing_limit_blocks = i == 0 ? 0 : pool;
    c.slot_guarantee = 12;
    c.preemptible = i == 1;
    c.max_preemptions = static_cast<std::int32_t>(draw->OneOf({1, 1, 2}));
    c.max_queued_requests = 20;
    c.max_wait = Plans(1000);
  }
  const std::int64_t width = scenario->pool.block_tokens;
  for (std::int64_t plan = 0; plan < 120; plan += draw->Between(1, 4)) {
    Event arrival;
    arrival.plan = plan;
    arrival.request = MakeRequest(*scenario, plan, draw);
    test::LoopRequest& r = arrival.request;
    r.service_class = plan % 20 < 8 ? 1 : 0;
    const std::int64_t blocks = draw->Between(1, std::max<std::int64_t>(1, pool / 3));
    r.prompt.resize(static_cast<std::size_t>(draw->Between(1, std::max<std::int64_t>(1, blocks * width / 3))), 5);
    r.n = draw->Chance(0.15) ? 2 : 1;
    r.max_output_tokens = std::max<std::int64_t>(2, blocks * width - std::ssize(r.prompt));
    r.deadline = kNoDeadline;
    arrival.stops_after.assign(static_cast<std::size_t>(r.n), kUnlimited);
    scenario->events.push_back(arrival);
  }
}

}  // namespace

std::int64_t Scenario::arrivals() const { return std::ranges::count(events, Event::Kind::kArrival, &Event::kind); }

namespace {

// Often none, sometimes too little for one request, sometimes more than the pool; copies from free to dearer than
// computing.
void DrawHostMemory(Scenario* scenario) {
  Draw draw(scenario->seed ^ 0x73776170);
  const std::int32_t blocks = scenario->pool.num_blocks;
  scenario->pool.host_blocks =
      static_cast<std::int32_t>(draw.OneOf({0, 0, draw.Between(1, 8), blocks / 2, blocks, 4 * blocks}));
  scenario->step_swap_time = std::chrono::microseconds(draw.OneOf({0, 5, 20, 500}));
  scenario->failing_swap = draw.OneOf({0, 0, 0, 1, 2});
}

}  // namespace

Scenario MakeScenario(std::uint64_t seed) {
  Draw draw(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.max_steps_in_flight = seed % 2 == 0 ? 1 : 2;
  scenario.pool.num_blocks = static_cast<std::int32_t>(draw.Chance(0.4) ? draw.Between(6, 60) : draw.Between(6, 24));
  scenario.pool.block_tokens = static_cast<std::int32_t>(draw.OneOf({1, 2, 4}));
  DrawHostMemory(&scenario);
  scenario.stop_lag = Draw(seed ^ 0x6c6167).OneOf({0, 0, 1, 4});
  const auto num_classes = static_cast<std::size_t>(draw.Between(1, 4));
  const std::int64_t slots = draw.Chance(0.5) ? draw.Between(1, 12) : draw.Between(8, 24);
  const PolicyTraits traits{num_classes, slots, draw.Chance(0.3), draw.Chance(0.1)};
  scenario.policy = MakePolicy(scenario.pool, traits, &draw);
  scenario.step_time = std::chrono::milliseconds(draw.OneOf({1, 1, 2, 5}));
  scenario.step_token_time = std::chrono::microseconds(draw.OneOf({0, 0, 10, 50}));
  const bool soon_protected = draw.Chance(0.4);
  if (draw.Chance(0.7)) {  // dense: borrowers that fill the pool, claims that need it back
    for (ClassPolicy& c : scenario.policy.classes) {
      c.max_queued_requests = 20;
      c.max_wait = Plans(draw.OneOf({30, 100, 1000}));
      if (!c.preemptible) continue;
      c.kv_borrowing_limit_blocks = draw.OneOf({scenario.pool.num_blocks, scenario.pool.num_blocks / 2});
      c.overload = Overload::kQueue;
      if (soon_protected) c.max_preemptions = 1;
    }
  }
  if (draw.Chance(0.25)) {
    MakeTugOfWar(&scenario, &draw);
    return scenario;
  }
  const std::int64_t requests = draw.Between(2, 50);
  const double gap = draw.OneOf({2, 5, 9}) / 10.0;
  std::int64_t plan = 0;
  for (std::int64_t i = 0; i < requests; ++i) {
    if (draw.Chance(gap)) plan += draw.OneOf({0, 1, 1, 2, 5});
    Event arrival;
    arrival.plan = plan;
    arrival.request = MakeRequest(scenario, plan, &draw);
    for (std::int32_t q = 0; q < arrival.request.n; ++q) {
      arrival.stops_after.push_back(
          draw.OneOf({kUnlimited, kUnlimited, draw.Between(1, arrival.request.max_output_tokens)}));
    }
    if (draw.Chance(0.1)) arrival.cancel_delay = draw.Between(0, 20);
    if (draw.Chance(0.05)) arrival.tokenizing = draw.Between(1, 6);
    arrival.gives_ticket_back = draw.Chance(0.01);
    arrival.duplicate_id = draw.Chance(0.005);
    const std::int64_t burst = draw.Chance(0.03) ? draw.Between(2, 10) : 1;
    for (std::int64_t k = 0; k < burst; ++k) scenario.events.push_back(arrival);
  }
  const auto insert = [&](Event event) {
    const auto place = std::ranges::upper_bound(scenario.events, event.plan, {}, &Event::plan);
    scenario.events.insert(place, std::move(event));
  };
  for (std::int64_t i = draw.OneOf({0, 0, 0, 1, 3}); i > 0; --i) {
    Event fault;
    fault.kind = Event::Kind::kFault;
    fault.plan = draw.Between(1, plan + 10);
    insert(fault);
  }
  if (draw.Chance(0.1)) {
    Event jump;
    jump.kind = Event::Kind::kClockJump;
    jump.plan = draw.Between(1, plan + 5);
    jump.jump = Plans(draw.Between(1, 200));
    insert(jump);
  }
  if (draw.Chance(0.35)) {
    std::vector<std::int64_t> plans;
    for (std::int64_t i = draw.Between(1, 3); i > 0; --i) plans.push_back(draw.Between(1, plan + 10));
    std::ranges::sort(plans);
    Event change;
    change.kind = Event::Kind::kPolicy;
    change.policy = scenario.policy;
    for (const std::int64_t at : plans) {
      change.plan = at;
      change.policy = MakePolicyChange(scenario.pool, traits, change.policy, &draw);
      insert(change);
    }
  }
  if (draw.Chance(0.03)) {
    Event draining;
    draining.kind = Event::Kind::kDraining;
    draining.plan = draw.Between(plan / 2, plan + 5);
    insert(draining);
  }
  return scenario;
}

std::string Describe(const Event& event) {
  std::ostringstream text;
  text << "before plan " << event.plan << ": ";
  switch (event.kind) {
    case Event::Kind::kArrival: {
      const test::LoopRequest& r = event.request;
      text << "arrival class " << r.service_class << " tenant " << r.tenant << " prompt " << r.prompt.size()
           << " output " << r.max_output_tokens << " n " << r.n;
      if (r.deadline != kNoDeadline) text << " deadline " << ToSeconds(r.deadline.time_since_epoch()) << " s";
      if (event.tokenizing > 0) text << " tokenized for " << event.tokenizing << " plans";
      if (event.gives_ticket_back) text << " gives its ticket back";
      if (event.duplicate_id) text << " has a live request's id";
      if (event.cancel_delay >= 0) text << " cancelled after " << event.cancel_delay << " plans";
      break;
    }
    case Event::Kind::kFault:
      text << "the backend fails the next step";
      break;
    case Event::Kind::kClockJump:
      text << "the clock jumps by " << ToSeconds(event.jump) << " s";
      break;
    case Event::Kind::kPolicy:
      text << "policy change:";
      for (const ClassPolicy& c : event.policy.classes) {
        text << " [G " << c.kv_guarantee_blocks << " borrow " << c.kv_borrowing_limit_blocks << " slots "
             << c.slot_guarantee << (c.preemptible ? " preemptible" : "")
             << (c.stop == ClassStop::kHold    ? " hold"
                 : c.stop == ClassStop::kDrain ? " drain"
                                               : "")
             << (c.removed ? " removed" : "") << "]";
      }
      break;
    case Event::Kind::kDraining:
      text << "the server drains";
      break;
  }
  return text.str();
}

}  // namespace berth::simulation
