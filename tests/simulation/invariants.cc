#include "invariants.h"
#include "base/index.h"

#include <algorithm>
#include <numeric>

#include "admission/demand.h"

namespace berth::simulation {
void Invariants::Bad(const std::string& invariant, const std::string& what) {
  if (!violation_.has_value()) violation_ = invariant + " in plan " + std::to_string(plan_) + ": " + what;
}

void Invariants::SetPolicy(const Policy& policy, const std::vector<std::int64_t>& tickets) {
  if (!policy_.classes.empty()) CheckQueues(tickets);  // what waits now is what may not grow
  policy_ = policy;
  owed_.clear();
}

std::int64_t Invariants::CommonBlocks() const {
  std::int64_t common = loop_->pool().shape().num_blocks;
  for (const ClassPolicy& c : policy_.classes) common -= c.kv_guarantee_blocks;
  return common;
}

std::int64_t Invariants::CommonSlots() const {
  std::int64_t common = policy_.max_running_sequences;
  for (const ClassPolicy& c : policy_.classes) common -= c.slot_guarantee;
  return common;
}

Invariants::Usage Invariants::Count() const {
  Usage usage;
  usage.slots.resize(policy_.classes.size());
  usage.queued.resize(policy_.classes.size());
  usage.queued_tokens.resize(policy_.classes.size());
  usage.parked.resize(policy_.classes.size());
  for (const test::CoreLoop::View& view : loop_->Views()) {
    const std::size_t c = Index(view.request->service_class);
    if (view.running) {
      usage.slots[c] += view.live_choices;
      usage.all_slots += view.live_choices;
    } else if (fates_.contains(view.key) && fates_.at(view.key).parked_plan >= 0) {
      ++usage.parked[c];
    } else {
      ++usage.queued[c];
      usage.queued_tokens[c] += std::ssize(view.request->prompt) + view.request->max_output_tokens;
    }
  }
  return usage;
}

// What non-preemptible classes use beyond their guarantees.
std::int64_t Invariants::Overage(const std::vector<std::int64_t>& used, bool slots) const {
  std::int64_t overage = 0;
  for (std::size_t c = 0; c < policy_.classes.size(); ++c) {
    const ClassPolicy& policy = policy_.classes[c];
    const std::int64_t guarantee = slots ? policy.slot_guarantee : policy.kv_guarantee_blocks;
    if (!policy.preemptible) overage += std::max<std::int64_t>(0, used[c] - guarantee);
  }
  return overage;
}

template <typename Use>
std::int64_t Invariants::Blocks(const std::vector<Holder>& holders, const Use& use) {
  std::set<BlockId> live;
  std::int64_t unspent = 0;
  for (const Holder& h : holders) {
    if (!use(h)) continue;
    live.insert(h.held.begin(), h.held.end());
    unspent += h.unspent;
  }
  return static_cast<std::int64_t>(live.size()) + unspent;
}

// No queue exceeds its bounds; where a policy change has lowered one, it does not grow.
void Invariants::CheckQueues(const std::vector<std::int64_t>& tickets) {
  Usage usage = Count();
  queued_before_.resize(usage.queued.size());
  queued_tokens_before_.resize(usage.queued.size());
  const auto check = [&](const std::string& what, std::int64_t now, std::int64_t before, std::int64_t bound) {
    if (now > bound && now > before) {
      Bad("I10", what + ": " + std::to_string(now) + " of " + std::to_string(bound));
    }
  };
  const auto sum = [](const std::vector<std::int64_t>& v) { return std::accumulate(v.begin(), v.end(), 0LL); };
  for (std::size_t c = 0; c < usage.queued.size(); ++c) {
    const std::string name = "class " + std::to_string(c);
    const std::int64_t places = usage.queued[c] + tickets[c];
    const std::int64_t taken = loop_->desk().places_taken(static_cast<ClassId>(c));
    if (taken != places + usage.parked[c]) {
      Bad("I10", name + " has " + std::to_string(taken) + " places taken, " + std::to_string(places) +
                     " queued or on their way and " + std::to_string(usage.parked[c]) + " parked");
    }
    check(name + " queues requests", places, queued_before_[c], policy_.classes[c].max_queued_requests);
    check(name + " queues tokens", usage.queued_tokens[c], queued_tokens_before_[c],
          policy_.classes[c].max_queued_tokens);
  }
  check("the server queues requests", sum(usage.queued), server_queued_before_, policy_.max_queued_requests);
  check("the server queues tokens", sum(usage.queued_tokens), sum(queued_tokens_before_), policy_.max_queued_tokens);
  server_queued_before_ = sum(usage.queued);
  for (std::size_t c = 0; c < usage.queued.size(); ++c) queued_before_[c] = usage.queued[c] + tickets[c];
  queued_tokens_before_ = std::move(usage.queued_tokens);
}

void Invariants::BeforePlan(const std::vector<std::int64_t>& tickets) {
  CheckQueues(tickets);
  const Usage usage = Count();
  const std::vector<Holder> holders = Holders();
  std::vector<std::int64_t> used(policy_.classes.size());
  for (std::size_t c = 0; c < used.size(); ++c) {
    used[c] = Blocks(holders, [&](const Holder& h) { return Index(h.c) == c; });
  }
  // A promise to the first in line; who is first may change between plans, as quotas free up.
  std::erase_if(owed_, [&](const auto& owed) {
    const RequestState* first = loop_->admission().FirstWaiting(owed.first);
    return first == nullptr || first->request.key != owed.second;
  });
  overage_before_ = Overage(used, false);
  slot_overage_before_ = Overage(usage.slots, true);
  slots_before_ = usage.all_slots;
  used_before_ = std::move(used);
}

// The pool's book and the ledger say what the requests' own tables say.
void Invariants::CheckBook(const std::vector<Holder>& holders) {
  const BlockPool& pool = loop_->pool();
  const Ledger& ledger = loop_->admission().ledger();
  std::vector<std::int32_t> references(Index(pool.shape().num_blocks));
  for (const Holder& h : holders) {
    for (const BlockId block : h.held) ++references[Index(block)];
  }
  for (BlockId block = 0; block < pool.shape().num_blocks; ++block) {
    if (pool.references(block) != references[Index(block)]) {
      Bad("I9", "block " + std::to_string(block) + " has " + std::to_string(references[Index(block)]) +
                    " holders, the pool counts " + std::to_string(pool.references(block)));
    }
  }
  pool.CheckBook();  // what has a reference is not in the free list, and the sums are right
  for (std::size_t c = 0; c < policy_.classes.size(); ++c) {
    const auto id = static_cast<ClassId>(c);
    const std::int64_t used = Blocks(holders, [&](const Holder& h) { return h.c == id; });
    std::int64_t slots = 0;
    for (const Holder& h : holders) slots += h.c == id ? h.slots : 0;
    if (ledger.used(id) != used || pool.used_blocks(id) != used || ledger.slots_used(id) != slots) {
      Bad("book", "class " + std::to_string(c) + ": the ledger says " + std::to_string(ledger.used(id)) + " blocks, " +
                      std::to_string(ledger.slots_used(id)) + " slots, the pool " +
                      std::to_string(pool.used_blocks(id)) + " blocks; held are " + std::to_string(used) + ", " +
                      std::to_string(slots));
    }
  }
}

void Invariants::CheckLimits() {
  const Usage usage = Count();
  const std::vector<Holder> holders = Holders();
  CheckBook(holders);
  std::vector<std::int64_t> used(policy_.classes.size());
  for (std::size_t c = 0; c < used.size(); ++c) {
    used[c] = Blocks(holders, [&](const Holder& h) { return Index(h.c) == c; });
    if (used[c] > policy_.classes[c].ceiling_blocks() && used[c] > used_before_[c]) {
      Bad("I1", "class " + std::to_string(c) + " uses " + std::to_string(used[c]) + " blocks of " +
                    std::to_string(policy_.classes[c].ceiling_blocks()));
    }
  }
  if (Blocks(holders, [](const Holder&) { return true; }) > loop_->pool().shape().num_blocks) {
    Bad("I2", "more blocks are promised than there are");
  }
  if (usage.all_slots > policy_.max_running_sequences && usage.all_slots > slots_before_) {
    Bad("I2", std::to_string(usage.all_slots) + " sequences run of " + std::to_string(policy_.max_running_sequences));
  }
  const std::int64_t overage = Overage(used, false);
  if (overage > CommonBlocks() && overage > overage_before_)
    Bad("S", "non-preemptible classes exceed the common blocks");
  const std::int64_t slot_overage = Overage(usage.slots, true);
  if (slot_overage > CommonSlots() && slot_overage > slot_overage_before_) {
    Bad("S", "non-preemptible classes exceed the common slots");
  }
  for (const Holder& h : holders) {
    const std::string name = "request " + std::to_string(h.key);
    if (std::ssize(h.held) > h.reserved) Bad("I5", name + " holds more than it reserved");
    const AdmissionRequest& r = loop_->admission().Find(h.key)->request;
    const std::int64_t worst =
        WorstBlocks(r.prompt_tokens, r.max_output_tokens, h.slots, loop_->pool().shape().block_tokens);
    if (h.reserved != worst) {
      Bad("I5",
          name + " reserves " + std::to_string(h.reserved) + " blocks, its worst case is " + std::to_string(worst));
    }
  }
}

// The host's blocks are held by parked requests alone, but for the step in which they are copied back.
void Invariants::CheckHostBlocks(bool after_step) {
  const HostBlocks& host = loop_->pool().host();
  std::int64_t held = 0;
  for (const test::CoreLoop::View& view : loop_->Views()) {
    const std::int64_t blocks = loop_->scheduler().HostBlocks(view.key);
    held += blocks;
    const bool may_come_back = loop_->scheduler().steps_in_flight() > 0;
    if (after_step && view.running && blocks > 0 && !may_come_back)
      Bad("host", "a running request holds blocks of the host's memory");
  }
  if (held != host.used() || held > host.num_blocks()) {
    Bad("host", std::to_string(host.used()) + " blocks of the host's memory are used and " + std::to_string(held) +
                    " held, of " + std::to_string(host.num_blocks()));
  }
}

void Invariants::CheckFates(const AdmissionPlan& plan) {
  for (const RequestKey key : plan.preempt) {
    Fate& fate = fates_[key];
    const std::string name = "request " + std::to_string(key);
    if (!fate.preemptible_start) Bad("I4", name + " started as non-preemptible and was preempted");
    if (fate.is_protected) Bad("I6", name + " was protected and was preempted");
    const bool ended = std::ranges::any_of(plan.too_often, [&](const auto& e) { return e.key == key; });
    if (!ended && ++fate.preemptions > fate.max_preemptions) Bad("I6", name + " was preempted too often");
    fate.parked_plan = ended ? -1 : plan_;
  }
  for (const auto& ending : plan.end) {
    const auto reason = ending.refusal.reason;
    const auto fate = fates_.find(ending.key);
    const bool started = fate != fates_.end() && fate->second.parked_plan < 0;
    if (started && reason != RefusalReason::kCancelledByClient && reason != RefusalReason::kDeadlineExceeded &&
        reason != RefusalReason::kBackendFault && reason != RefusalReason::kDeadlineInfeasible) {
      Bad("I4", "request " + std::to_string(ending.key) + " was running and ended " + RefusalReasonName(reason));
    }
  }
  for (const auto& start : plan.admit) {
    CheckStopped(start);
    const RequestState* r = loop_->admission().Find(start.key);
    const ClassPolicy& policy = policy_.classes[Index(r->request.service_class)];
    const auto [fate, first_time] = fates_.try_emplace(start.key);
    if (!first_time && fate->second.preemptions >= fate->second.max_preemptions &&
        r->is_protected != FitsGuarantee(*r)) {
      Bad("I6",
          "request " + std::to_string(start.key) + (r->is_protected ? " is" : " is not") + " protected at its resume");
    }
    if (first_time) fate->second.max_preemptions = policy.max_preemptions;
    fate->second.preemptible_start = policy.preemptible;
    fate->second.is_protected = r->is_protected;
    fate->second.parked_plan = -1;
  }
}

bool Invariants::FitsGuarantee(const RequestState& r) const {
  const ClassPolicy& policy = policy_.classes[Index(r.request.service_class)];
  const std::int64_t worst = WorstBlocks(r.request.prompt_tokens, r.request.max_output_tokens, r.live_choices,
                                         loop_->pool().shape().block_tokens);
  return worst <= policy.kv_guarantee_blocks && r.live_choices <= policy.slot_guarantee;
}

// Nothing starts in a class on hold or one that is gone, and only what was preempted in one that drains.
void Invariants::CheckStopped(const AdmissionPlan::Start& start) {
  const ClassPolicy& policy = policy_.classes[Index(loop_->admission().Find(start.key)->request.service_class)];
  const std::string name = "request " + std::to_string(start.key);
  if (policy.stop == ClassStop::kHold) Bad("hold", name + " of a class on hold started");
  if (policy.stop == ClassStop::kDrain && !start.resumed) Bad("drain", name + " of a class that drains started");
  if (policy.removed) Bad("removed", name + " of a class that is gone started");
}

void Invariants::CheckOvertaking(const AdmissionPlan& plan) {
  std::set<std::pair<ClassId, TenantId>> parked;
  for (const test::CoreLoop::View& view : loop_->Views()) {
    const auto fate = fates_.find(view.key);
    if (fate == fates_.end() || fate->second.parked_plan < 0 || fate->second.parked_plan == plan_) continue;
    parked.insert({view.request->service_class, view.request->tenant});
  }
  for (const auto& start : plan.admit) {
    const RequestState* r = loop_->admission().Find(start.key);
    if (!start.resumed && parked.contains({r->request.service_class, r->request.tenant})) {
      Bad("I8", "request " + std::to_string(start.key) + " started before a preempted one of its class and tenant");
    }
  }
}

// The last to start in a plan, where it is beyond its guarantee, left what the others keep back.
void Invariants::CheckUnlent(const AdmissionPlan& plan) {
  if (plan.admit.empty()) return;
  const RequestState* r = loop_->admission().Find(plan.admit.back().key);
  const ClassId c = r->request.service_class;
  const ClassPolicy& own = policy_.classes[Index(c)];
  if (r->is_protected ||
      (loop_->pool().used_blocks(c) <= own.kv_guarantee_blocks && Count().slots[Index(c)] <= own.slot_guarantee)) {
    return;
  }
  std::int64_t keep = 0;
  for (std::size_t d = 0; d < policy_.classes.size(); ++d) {
    const ClassPolicy& other = policy_.classes[d];
    if (static_cast<ClassId>(d) == c) continue;
    keep += std::max<std::int64_t>(0, other.kv_guarantee_blocks - other.kv_lending_limit_blocks -
                                          loop_->pool().used_blocks(static_cast<ClassId>(d)));
  }
  if (loop_->pool().available_blocks() < keep)
    Bad("lending", "class " + std::to_string(c) + " borrowed what is not lent");
}

std::vector<Invariants::Holder> Invariants::Holders() const {
  std::vector<Holder> holders;
  for (const test::CoreLoop::View& view : loop_->Views()) {
    if (!view.running) continue;
    const BlockReservation& blocks = *loop_->scheduler().Blocks(view.key);
    const RequestState* r = loop_->admission().Find(view.key);
    Holder h{view.key, view.request->service_class, {}, blocks.reserved(), 0, view.live_choices, false};
    h.held.insert(blocks.shared_blocks().begin(), blocks.shared_blocks().end());
    for (std::int32_t q = 0; q < blocks.choices(); ++q) {
      h.held.insert(blocks.own_blocks(q).begin(), blocks.own_blocks(q).end());
    }
    h.unspent = h.reserved - std::ssize(h.held);
    h.may_be_preempted = policy_.classes[Index(h.c)].preemptible && r->started_preemptible && !r->is_protected;
    holders.push_back(std::move(h));
  }
  return holders;
}

// After everyone who may be preempted for it is gone, what is still short is no more than what nobody may reclaim.
bool Invariants::DebtExplains(const RequestState& first, const std::set<BlockId>& hits) {
  std::vector<Holder> holders = Holders();
  const std::int64_t worst = WorstBlocks(first.request.prompt_tokens, first.request.max_output_tokens,
                                         first.live_choices, loop_->pool().shape().block_tokens);
  std::int64_t fixed_blocks = 0;
  std::int64_t fixed_slots = 0;
  for (std::size_t c = 0; c < policy_.classes.size(); ++c) {
    const auto fixed = [&](const Holder& h) { return Index(h.c) == c && !h.may_be_preempted; };
    std::int64_t slots = 0;
    for (const Holder& h : holders) slots += fixed(h) ? h.slots : 0;
    fixed_blocks += std::max<std::int64_t>(0, Blocks(holders, fixed) - policy_.classes[c].kv_guarantee_blocks);
    fixed_slots += std::max<std::int64_t>(0, slots - policy_.classes[c].slot_guarantee);
  }
  holders.push_back({first.request.key, first.request.service_class, hits, worst,
                     worst - static_cast<std::int64_t>(hits.size()), first.live_choices, false});
  for (;;) {
    const std::int64_t short_blocks =
        Blocks(holders, [](const Holder&) { return true; }) - loop_->pool().shape().num_blocks;
    std::int64_t short_slots = -policy_.max_running_sequences;
    for (const Holder& h : holders) short_slots += h.slots;
    const auto victim = std::ranges::find_if(holders, [&](const Holder& h) {
      if (!h.may_be_preempted) return false;
      const auto same = [&](const Holder& o) { return o.c == h.c; };
      std::int64_t slots = 0;
      for (const Holder& o : holders) slots += same(o) ? o.slots : 0;
      return (short_blocks > 0 && Blocks(holders, same) > policy_.classes[Index(h.c)].kv_guarantee_blocks) ||
             (short_slots > 0 && slots > policy_.classes[Index(h.c)].slot_guarantee);
    });
    if (victim != holders.end()) {
      holders.erase(victim);
      continue;
    }
    if (short_blocks <= 0 && short_slots <= 0) return false;
    return short_blocks <= std::max<std::int64_t>(0, fixed_blocks - CommonBlocks()) &&
           short_slots <= std::max<std::int64_t>(0, fixed_slots - CommonSlots());
  }
}

void Invariants::CheckGuarantees() {
  std::map<ClassId, RequestKey> owed;
  const Usage usage = Count();
  for (ClassId c = 0; c < std::ssize(policy_.classes); ++c) {
    const RequestState* first = loop_->admission().FirstWaiting(c);
    const ClassPolicy& policy = policy_.classes[Index(c)];
    if (first == nullptr || policy.stop == ClassStop::kHold) continue;
    std::vector<CachedBlock> cached;
    loop_->scheduler().FindCached(first->request.key, &cached);
    std::set<BlockId> hits;
    std::int64_t charge = WorstBlocks(first->request.prompt_tokens, first->request.max_output_tokens,
                                      first->live_choices, loop_->pool().shape().block_tokens);
    for (const CachedBlock& hit : cached) {
      hits.insert(hit.block);
      charge -= loop_->pool().HeldByClass(hit.block, c) ? 1 : 0;
    }
    if (loop_->pool().used_blocks(c) + charge > policy.kv_guarantee_blocks ||
        usage.slots[Index(c)] + first->live_choices > policy.slot_guarantee) {
      continue;
    }
    const auto before = owed_.find(c);
    if (before != owed_.end() && before->second == first->request.key && !DebtExplains(*first, hits)) {
      Bad("I3", "class " + std::to_string(c) + "'s first request " + std::to_string(first->request.key) +
                    " fits its guarantee and was not started");
    }
    owed[c] = first->request.key;
  }
  owed_ = std::move(owed);
}

void Invariants::AfterPlan(const AdmissionPlan& plan, std::int64_t plan_number) {
  plan_ = plan_number;
  CheckFates(plan);
  CheckLimits();
  CheckLoad();
  CheckHostBlocks(false);
  CheckOvertaking(plan);
  CheckUnlent(plan);
  CheckGuarantees();
}

void Invariants::AfterStep() {
  CheckLimits();
  CheckHostBlocks(true);
  const bool has_shares = !loop_->scheduler().shares().empty();  // nobody shares in a step of ghosts
  if (loop_->last_step() != nullptr && !loop_->last_step_failed() && (has_shares || !loop_->submits_ahead())) {
    double sum = 0.0;
    for (const StepShare& share : loop_->scheduler().shares()) sum += share.share;
    if (sum < 1.0 - 1e-9 || sum > 1.0 + 1e-9) Bad("shares", "a step's time is split into " + std::to_string(sum));
  }
  const auto views = loop_->Views();
  const bool may_move = std::ranges::any_of(views, [&](const auto& view) {
    return view.running || policy_.classes[Index(view.request->service_class)].stop != ClassStop::kHold;
  });
  idle_plans_ = may_move && !loop_->progressed() ? idle_plans_ + 1 : 0;
  if (idle_plans_ > (loop_->submits_ahead() ? 2 : 1))
    Bad("I11", std::to_string(loop_->live()) + " requests live and nothing happens");
}

void Invariants::AtEnd() {
  if (loop_->pool().available_blocks() != loop_->pool().shape().num_blocks) Bad("I7", "blocks were lost");
  if (loop_->pool().host().used() > 0) Bad("I7", "blocks of the host's memory were lost");
}

}  // namespace berth::simulation
