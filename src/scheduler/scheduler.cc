#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"

namespace berth {
namespace {

std::int64_t Length(const std::vector<TokenId>& tokens) { return static_cast<std::int64_t>(tokens.size()); }

}  // namespace

Scheduler::Scheduler(BlockPool* pool, const Policy& policy, const StepCostModel& cost_model,
                     std::int32_t max_steps_in_flight)
    : pool_(pool), policy_(policy), cost_model_(cost_model), max_steps_in_flight_(max_steps_in_flight) {
  BERTH_CHECK(max_steps_in_flight >= 1 && max_steps_in_flight <= kMaxStepsInFlight);
  SetPolicy(policy);
}

void Scheduler::SetPolicy(const Policy& policy) {
  policy_ = policy;
  pool_->GrowClasses(static_cast<std::int32_t>(policy.classes.size()));
}

Scheduler::Request& Scheduler::at(RequestKey key) { return const_cast<Request&>(std::as_const(*this).at(key)); }

const Scheduler::Request& Scheduler::at(RequestKey key) const {
  const auto found = requests_.find(key);
  BERTH_CHECK(found != requests_.end());
  return *found->second;
}

void Scheduler::Add(ScheduledRequest request) {
  BERTH_CHECK(!request.prompt.empty() && request.max_output_tokens >= 1 && request.sampling != nullptr);
  auto r = std::make_unique<Request>();
  r->choices.resize(Index(request.sampling->n));
  const RequestKey key = request.key;
  r->spec = std::move(request);
  BERTH_CHECK(requests_.emplace(key, std::move(r)).second);
}

void Scheduler::Remove(RequestKey key) {
  const auto found = requests_.find(key);
  if (found == requests_.end()) return;
  DropHostCopy(found->second.get());
  LetGo(found->second.get());
  Bury(std::move(found->second));
  requests_.erase(found);
}

// A step in flight may name the request, and borrow of it.
void Scheduler::Bury(std::unique_ptr<Request> r) {
  r->removed = true;
  if (in_flight_ > 0 && r->last_step >= InFlight(0).plan.step) buried_.push_back(std::move(r));
}

// Its rows in flight are ghosts from now on.
void Scheduler::LetGo(Request* r) {
  if (!r->blocks.has_value()) return;
  table_blocks_ -= r->table_blocks;
  r->blocks.reset();
  running_[Index(r->running_index)] = running_.back();
  running_.back()->running_index = r->running_index;
  running_.pop_back();
}

void Scheduler::Commit(const AdmissionPlan& plan) {
  BERTH_CHECK(in_flight_ <= 1);
  for (const AdmissionPlan::Ending& ending : plan.end) {
    if (!Planted(PlantedBug::kLeakOnCancel) || ending.refusal.reason != RefusalReason::kCancelledByClient) {
      Remove(ending.key);
    }
  }
  const bool may_swap = pool_->host().num_blocks() > 0;
  for (const RequestKey key : plan.preempt) {
    Request& r = at(key);
    if (r.host != nullptr) {
      KeepHostCopy(&r);
    } else if (may_swap) {
      leaving_.push_back(Describe(r));
    }
    LetGo(&r);
  }
  for (const AdmissionPlan::Ending& ending : plan.too_often) Remove(ending.key);
  for (const AdmissionPlan::Start& start : plan.admit) Start(start);
  // Only now: whatever starts holds its hits, so nobody's are taken for what comes back.
  if (may_swap) CommitSwaps(plan);
}

std::int64_t Scheduler::SharedTokens(const Request& r) const {
  const std::int64_t width = pool_->shape().block_tokens;
  return r.prompt_tokens() / width * width;
}

std::int32_t Scheduler::Leader(const Request& r) const {
  std::int32_t q = 0;
  while (r.choices[Index(q)].ended) ++q;
  return q;
}

CachedPrefix Scheduler::Cached(const Request& r) const {
  CachedPrefix cached;
  if (r.spec.prompt_logprobs != kNoLogprobs) return cached;
  std::vector<std::span<const TokenId>> histories;
  histories.reserve(r.choices.size());
  for (const Choice& c : r.choices) {
    if (c.ended) {
      histories.emplace_back();
    } else {
      histories.emplace_back(c.history.empty() ? r.spec.prompt : c.history);
    }
  }
  pool_->FindCached(r.spec.salt, r.prompt_tokens(), histories, &cached);
  return cached;
}

void Scheduler::Start(const AdmissionPlan::Start& start) {
  Request& r = at(start.key);
  BERTH_CHECK(!r.blocks.has_value());
  const CachedPrefix cached = Cached(r);
  const std::int64_t width = pool_->shape().block_tokens;
  const ReservationSpec spec{start.key, r.spec.service_class, start.reserved_blocks, SharedTokens(r) / width,
                             static_cast<std::int32_t>(r.choices.size())};
  r.blocks = pool_->Reserve(spec, r.spec.salt, cached);
  BERTH_CHECK_MSG(r.blocks.has_value(), "admission started a request that the pool has no room for");
  r.table_blocks = start.reserved_blocks * std::ssize(r.choices);
  table_blocks_ += r.table_blocks;
  ++r.run;
  r.running_index = static_cast<std::int32_t>(running_.size());
  running_.push_back(&r);

  r.cached_tokens = cached.size() * width;
  const std::int64_t shared = std::ssize(cached.shared) * width;
  const bool all_shared = shared == SharedTokens(r);
  bool resumed = false;
  for (std::size_t q = 0; q < r.choices.size(); ++q) {
    Choice& c = r.choices[q];
    if (c.history.empty()) {
      c.sequence = next_sequence_++;
      c.history.reserve(Index(r.prompt_tokens() + r.spec.max_output_tokens));
      c.history = r.spec.prompt;
    }
    resumed |= Length(c.history) > r.prompt_tokens();
    const std::int64_t own = q < cached.choices.size() ? std::ssize(cached.choices[q]) * width : 0;
    c.stored = all_shared ? shared + own : 0;
    c.ahead = c.stored;
    c.draws = 0;
    c.drafted = -1;
  }
  Choice& leader = r.choices[Index(Leader(r))];
  leader.ahead = leader.stored = std::max(leader.stored, shared);
  // Choices that have drawn tokens recompute their own parts; before that they follow the first one and part later.
  r.forked = resumed || r.choices.size() == 1;
}

void Scheduler::EndChoice(RequestKey key, std::int32_t choice, std::int64_t new_reserved,
                          std::vector<BlockId>* released) {
  BERTH_CHECK(in_flight_ <= 1);
  Request& r = at(key);
  const std::int32_t leader = Leader(r);
  Choice& ending = r.choices[Index(choice)];
  // What it computed of the prompt's full blocks, perhaps again after a preemption, is there for the next one.
  const std::int64_t common = std::min(r.choices[Index(leader)].stored, SharedTokens(r));
  if (choice == leader && ending.stored < SharedTokens(r)) {
    // What it still computes of them is a ghost's; the others have no rows before those are there.
    for (Choice& c : r.choices) c.ahead = c.stored;
  }
  ending.ended = true;
  DropSwapIn(&r, choice);
  if (!r.forked && choice == leader && ending.stored > SharedTokens(r) && r.spec.max_output_tokens > 1) {
    r.blocks->SwapOwn(choice, Leader(r));  // the others have yet to copy the prompt's last block
  }
  Choice& next = r.choices[Index(Leader(r))];
  next.stored = std::max(next.stored, common);
  next.ahead = std::max(next.ahead, next.stored);
  r.blocks->EndChoice(choice, new_reserved, released);
}

void Scheduler::FindCached(RequestKey key, std::vector<CachedBlock>* out) const {
  const CachedPrefix cached = Cached(at(key));
  const auto add = [&](const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) out->push_back({block, pool_->SoleHolder(block)});
  };
  add(cached.shared);
  for (const auto& choice : cached.choices) add(choice);
}

std::int64_t Scheduler::RecomputeTokens(RequestKey key) const {
  const Request& r = at(key);
  std::int64_t tokens = 0;
  for (const Choice& c : r.choices) {
    if (!c.ended) tokens += std::max<std::int64_t>(0, c.stored - (tokens > 0 ? SharedTokens(r) : 0));
  }
  return tokens;
}

std::int64_t Scheduler::UsedTokens(RequestKey key) const {
  const Request& r = at(key);
  std::int64_t tokens = r.prompt_tokens();
  for (const Choice& c : r.choices) tokens += std::max<std::int64_t>(0, Length(c.history) - r.prompt_tokens());
  return tokens;
}

std::int64_t Scheduler::Left(const Request& r, std::int64_t computed_tokens) const {
  std::int64_t output_left = 0;
  std::int64_t history = r.prompt_tokens();
  for (const Choice& c : r.choices) {
    if (c.ended) continue;
    const std::int64_t length = std::max(r.prompt_tokens(), Length(c.history));
    history = std::max(history, length);
    output_left = std::max(output_left, r.spec.max_output_tokens - (length - r.prompt_tokens()));
  }
  return output_left + CeilDiv(std::max<std::int64_t>(0, history - 1 - computed_tokens), policy_.max_batched_tokens);
}

std::int64_t Scheduler::StepsToFinish(RequestKey key, std::int64_t cached_blocks) const {
  const Request& r = at(key);
  std::int64_t computed = cached_blocks * pool_->shape().block_tokens;
  if (r.host != nullptr) {
    computed = std::max(computed, r.host->shared_tokens + r.host->own_tokens[Index(Leader(r))]);
  }
  return Left(r, computed) + max_steps_in_flight_ - 1;  // the last one is still in flight when the next is planned
}

const BlockReservation* Scheduler::Blocks(RequestKey key) const {
  const Request& r = at(key);
  return r.blocks.has_value() ? &*r.blocks : nullptr;
}

void Scheduler::AddWantedTokens(std::span<std::int64_t> by_class) const {
  for (const Request* r : running_) {
    const std::int32_t leader = Leader(*r);
    std::int64_t& wanted = by_class[Index(r->spec.service_class)];
    for (std::size_t q = 0; q < r->choices.size(); ++q) {
      const Choice& c = r->choices[q];
      // Before they part, one sequence computes the prompt for all.
      if (c.ended || (!r->forked && static_cast<std::int32_t>(q) != leader)) continue;
      const std::int64_t missing = Length(c.history) - c.stored;
      const bool decodes = missing == 1 && Length(c.history) > r->prompt_tokens();
      wanted += decodes ? 1 : std::min(missing, policy_.max_batched_tokens);
    }
  }
}

std::int64_t RequiredTokens(const ClassPolicy& c, std::int64_t max_output_tokens) {
  switch (c.require) {
    case DeadlineRequirement::kFirstToken:
      return 1;
    case DeadlineRequirement::kUsefulOutput:
      return std::min(c.useful_tokens, max_output_tokens);
    case DeadlineRequirement::kFullOutput:
      return max_output_tokens;
  }
  return 1;
}

Duration Scheduler::PredictTime(std::int64_t prompt_tokens, std::int64_t output_tokens, bool alone) const {
  const std::int64_t steps = CeilDiv(prompt_tokens, policy_.max_batched_tokens);
  const std::int64_t others = alone ? 0 : last_work_.decode_sequences;
  const std::int64_t others_kv = alone ? 0 : last_work_.decode_kv_tokens;
  const StepWork chunk{CeilDiv(prompt_tokens, std::max<std::int64_t>(1, steps)), others, others_kv,
                       prompt_tokens * prompt_tokens / (2 * std::max<std::int64_t>(1, steps))};
  const StepWork decode{0, others + 1, others_kv + prompt_tokens + output_tokens / 2, 0};
  return cost_model_.Predict(chunk) * steps +
         cost_model_.Predict(decode) * std::max<std::int64_t>(0, output_tokens - 1);
}

}  // namespace berth
