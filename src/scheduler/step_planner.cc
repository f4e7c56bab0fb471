// What the next step computes: decode first, then prefill chunks into what the step's budget leaves.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"
#include "scheduler/scheduler.h"

namespace berth {
const StepPlan& Scheduler::PlanStep(TimePoint now) {
  BERTH_CHECK_MSG(in_flight_ < max_steps_in_flight_, "too many steps in flight");
  BeginStep();
  EmitSwaps();

  prefilling_.clear();
  for (Request* r : running_) {
    if (!EmitDecodes(r)) prefilling_.push_back(r);
  }
  draft_.clear();
  draft_block_ids_.clear();
  prefills_.clear();
  GatherPrefills(now);
  if (!prefills_.empty()) ShareOut(PrefillBudget(step_->work.decode_sequences));
  for (const Prefill& p : prefills_) {
    if (p.chunk == 0) {
      step_->left_out.push_back({p.request->spec.key, p.request->run});
      continue;
    }
    step_->work.prefill_tokens += p.chunk;
    step_->work.prefill_kv_products += p.chunk * (p.request->choices[Index(p.choice)].ahead + p.chunk);
    Emit(p.request, p.choice, p.chunk);
  }
  if (!step_->plan.empty()) ++in_flight_;
  return step_->plan;
}

void Scheduler::BeginStep() {
  step_ = &InFlight(in_flight_);
  StepPlan& plan = step_->plan;
  plan.Clear();
  plan.step = ++planned_steps_;
  step_->work = StepWork();
  step_->parts.clear();
  step_->rows.clear();
  step_->draws.clear();
  step_->targets.clear();
  step_->left_out.clear();
  hopeless_.clear();
  tightest_slo_ = Duration::max();
  if (in_flight_ > 0) draft_.clear();  // it was made without knowing what this one carries
  // The drafted rows' tables are there already; what is not drafted goes behind them.
  if (!draft_.empty()) std::swap(plan.block_ids, draft_block_ids_);
  if (Index(table_blocks_) > plan.block_ids.capacity()) plan.block_ids.reserve(2 * Index(table_blocks_));
}

// A row for each of the request's sequences that decodes. False where one does not.
bool Scheduler::EmitDecodes(Request* r) {
  ForkIfDue(r);
  bool all = true;
  bool any = false;
  for (std::size_t q = 0; q < r->choices.size(); ++q) {
    const Choice& c = r->choices[q];
    if (c.ended || IsComplete(*r, c)) continue;
    if (!IsDecoding(*r, c)) {
      all = false;
      continue;
    }
    any = true;
    ++step_->work.decode_sequences;
    step_->work.decode_kv_tokens += c.ahead + 1;
    const auto choice = static_cast<std::int32_t>(q);
    if (DraftedRow* drafted = Drafted(c)) {
      EmitDrafted(r, choice, drafted);
    } else {
      Emit(r, choice, 1);
    }
  }
  if (!any) return all;
  const std::optional<Duration>& slo = policy_.classes[Index(r->spec.service_class)].inter_token_slo;
  if (slo.has_value()) tightest_slo_ = std::min(tightest_slo_, *slo);
  return all;
}

// Sequences that do not decode, in the order in which they get chunks.
void Scheduler::GatherPrefills(TimePoint now) {
  for (Request* r : prefilling_) {
    const std::int32_t leader = Leader(*r);
    const bool shared_ready = r->choices[Index(leader)].ahead >= SharedTokens(*r);
    std::optional<Duration> hopeless;
    for (std::size_t q = 0; q < r->choices.size(); ++q) {
      const Choice& c = r->choices[q];
      const auto choice = static_cast<std::int32_t>(q);
      if (c.ended || IsComplete(*r, c) || IsDecoding(*r, c)) continue;
      // One sequence computes what all share, and before they part it computes the whole prompt.
      if (choice != leader && (!shared_ready || !r->forked)) continue;
      const Prefill p{r, choice, c.length() - c.ahead, 0};
      if (!hopeless.has_value()) hopeless = TooLate(*r, p, now);
      if (!hopeless.has_value()) prefills_.push_back(p);
    }
    if (!hopeless.has_value()) continue;
    const std::int64_t computed_tokens = r->choices[Index(leader)].ahead - r->cached_tokens;
    hopeless_.push_back({r->spec.key, *hopeless, std::max<std::int64_t>(0, computed_tokens)});
  }
  std::ranges::sort(prefills_, [&](const Prefill& a, const Prefill& b) {
    const auto rank = [&](const Prefill& p) {
      return std::tuple(-policy_.classes[Index(p.request->spec.service_class)].priority, p.request->spec.deadline,
                        p.request->spec.key, p.choice);
    };
    return rank(a) < rank(b);
  });
}

// How long it would take alone until what its class requires is there, where that is beyond the deadline.
std::optional<Duration> Scheduler::TooLate(const Request& r, const Prefill& p, TimePoint now) const {
  if (r.spec.deadline == kNoDeadline) return std::nullopt;
  const auto drawn = static_cast<std::int64_t>(r.choices[Index(p.choice)].history.size()) - r.prompt_tokens();
  const std::int64_t missing = RequiredTokens(r.spec.service_class, r.spec.max_output_tokens) - drawn;
  if (missing <= 0) return std::nullopt;
  const Duration predicted = PredictTime(p.need, missing, true);
  return now + predicted > r.spec.deadline ? std::optional(predicted) : std::nullopt;
}

// Tokens for prefill in a step with so many decodes: what keeps the step within the tightest inter-token SLO of what
// decodes now, but never so little that a prefill stands still.
std::int64_t Scheduler::PrefillBudget(std::int64_t decodes) const {
  // A policy change may leave less than what runs already needs; then a step exceeds it rather than stall anyone.
  const std::int64_t most = std::max<std::int64_t>(1, policy_.max_batched_tokens - decodes);
  if (tightest_slo_ == Duration::max()) return most;
  const Prefill& first = prefills_.front();
  const std::int64_t context = first.request->choices[Index(first.choice)].ahead;
  const std::int64_t within = cost_model_.PrefillTokensWithin(tightest_slo_, step_->work, context, most);
  return std::clamp(within, std::min<std::int64_t>(pool_->shape().block_tokens, most), most);
}

void Scheduler::ShareOut(std::int64_t budget) {
  std::int64_t left = budget;
  const auto give = [&](Prefill* p, std::int64_t most) {
    const std::int64_t tokens = std::min({most, left, p->need - p->chunk});
    p->chunk += tokens;
    left -= tokens;
    return tokens;
  };
  for (ClassId c = 0; c < std::ssize(policy_.classes); ++c) {
    const double share = policy_.classes[Index(c)].prefill_min_share;
    if (share <= 0.0) continue;
    auto guaranteed = static_cast<std::int64_t>(share * static_cast<double>(budget));
    for (Prefill& p : prefills_) {
      if (p.request->spec.service_class == c) guaranteed -= give(&p, guaranteed);
    }
  }
  for (Prefill& p : prefills_) give(&p, left);
}

// The step after a group's prompt: each choice but one gets a copy of the prompt's last, partial block.
void Scheduler::ForkIfDue(Request* r) {
  if (r->forked) return;
  const std::int32_t leader = Leader(*r);
  if (!IsDecoding(*r, r->choices[Index(leader)]) || IsComplete(*r, r->choices[Index(leader)])) return;
  r->forked = true;
  if (r->prompt_tokens() == SharedTokens(*r)) return;
  for (std::size_t q = 0; q < r->choices.size(); ++q) {
    const auto choice = static_cast<std::int32_t>(q);
    if (choice == leader || r->choices[q].ended) continue;
    step_->plan.block_copies.push_back({r->blocks->own_blocks(leader)[0], r->blocks->own_blocks(choice)[0]});
  }
}

void Scheduler::Emit(Request* r, std::int32_t choice, std::int64_t tokens) {
  const Choice& c = r->choices[Index(choice)];
  const std::int64_t end = c.ahead + tokens;
  r->blocks->Cover(choice, end);
  if (!r->forked && end == r->prompt_tokens() && r->spec.max_output_tokens > 1) {
    for (std::size_t q = 0; q < r->choices.size(); ++q) {
      if (!r->choices[q].ended) r->blocks->Cover(static_cast<std::int32_t>(q), end);
    }
  }
  std::vector<BlockId>& tables = step_->plan.block_ids;
  StepRow row;
  row.sequence = c.sequence;
  row.first_position = static_cast<std::int32_t>(c.ahead);
  row.num_tokens = static_cast<std::int32_t>(tokens);
  row.block_begin = static_cast<std::int32_t>(tables.size());
  r->blocks->AppendTable(choice, &tables);
  row.num_blocks = static_cast<std::int32_t>(tables.size()) - row.block_begin;
  EmitRow(r, choice, row);
  EmitLogits(r, choice, tokens);
  TakeAhead(r, choice, end);
}

// All of a row but what it draws.
void Scheduler::EmitRow(Request* r, std::int32_t choice, const StepRow& row) {
  const Choice& c = r->choices[Index(choice)];
  StepPlan& plan = step_->plan;
  plan.rows.push_back(row);
  plan.rows.back().token_begin = static_cast<std::int32_t>(plan.token_ids.size());
  const std::int64_t end = c.ahead + row.num_tokens;
  const std::int64_t known = std::min(end, static_cast<std::int64_t>(c.history.size()));
  plan.token_ids.insert(plan.token_ids.end(), c.history.begin() + c.ahead, c.history.begin() + known);
  if (known < end) {
    // The step in flight draws it.
    const std::int32_t drawn = Planted(PlantedBug::kCarriedFromAnother) ? 0 : c.last_draw;
    plan.carried_tokens.push_back({static_cast<std::int32_t>(plan.token_ids.size()), drawn});
    plan.token_ids.push_back(kNoToken);
  }
  Part& part = PartOf(r);
  part.forked = r->forked;
  step_->rows.push_back({r->part, choice, IsDecoding(*r, c)});
}

// The choice's row is in the step. What a leader computes of the prompt will be there for all choices.
void Scheduler::TakeAhead(Request* r, std::int32_t choice, std::int64_t end) {
  r->choices[Index(choice)].ahead = end;
  if (r->choices.size() == 1 || choice != Leader(*r)) return;
  const std::int64_t common = CommonTokens(*r, r->forked, end);
  for (Choice& c : r->choices) c.ahead = std::max(c.ahead, common);
}

// What all choices of a group have, where their leader has so many tokens: nothing before it is through with what they
// share.
std::int64_t Scheduler::CommonTokens(const Request& r, bool forked, std::int64_t leader_tokens) const {
  if (leader_tokens < SharedTokens(r)) return 0;
  return forked ? SharedTokens(r) : leader_tokens;
}

Scheduler::Part& Scheduler::PartOf(Request* r) {
  if (r->last_step != step_->plan.step) {
    r->last_step = step_->plan.step;
    r->part = static_cast<std::int32_t>(step_->parts.size());
    step_->parts.push_back({.request = r, .run = r->run});
  }
  return step_->parts[Index(r->part)];
}

void Scheduler::EmitLogits(Request* request, std::int32_t choice, std::int64_t tokens) {
  const Request& r = *request;
  const Choice& c = r.choices[Index(choice)];
  StepPlan& plan = step_->plan;
  const std::int64_t end = c.ahead + tokens;
  const std::int64_t first_index = std::ssize(plan.token_ids) - tokens - c.ahead;
  if (r.spec.prompt_logprobs != kNoLogprobs) {
    // Positions that a request computes again after a preemption were reported already, be it by a choice that has
    // ended.
    std::int64_t reported = 0;
    for (const Choice& any : r.choices) reported = std::max(reported, any.highest_stored);
    const auto first = static_cast<std::int32_t>(plan.logit_rows.size());
    for (std::int64_t p = std::max(c.ahead, reported); p < std::min(end, r.prompt_tokens() - 1); ++p) {
      LogitRow row;
      row.token_index = static_cast<std::int32_t>(first_index + p);
      row.target = r.spec.prompt[Index(p + 1)];
      row.top_logprobs = r.spec.prompt_logprobs;
      plan.logit_rows.push_back(row);
    }
    const auto count = static_cast<std::int32_t>(plan.logit_rows.size()) - first;
    if (count > 0) step_->targets.push_back({r.part, choice, {r.spec.key, first, count}});
  }
  if (end < c.length()) return;
  for (std::size_t q = 0; q < r.choices.size(); ++q) {
    const auto drawer = static_cast<std::int32_t>(q);
    const Choice& d = r.choices[q];
    if (d.ended || (r.forked && drawer != choice)) continue;
    LogitRow row = DecodeLogits(r, drawer, d.length());
    row.token_index = static_cast<std::int32_t>(first_index + end - 1);
    AddDraw(request, drawer, row);
  }
}

// What draws the token after `length` tokens of the choice; its history and its place are still to be filled in.
LogitRow Scheduler::DecodeLogits(const Request& r, std::int32_t choice, std::int64_t length) {
  LogitRow row;
  row.top_logprobs = r.spec.logprobs;
  row.sampling.spec = r.spec.sampling;
  row.sampling.choice_index = choice;
  row.sampling.prompt_tokens = static_cast<std::int32_t>(r.prompt_tokens());
  const bool early = length - r.prompt_tokens() < r.spec.min_output_tokens;
  row.sampling.banned = early ? r.spec.early_banned : r.spec.banned;
  return row;
}

void Scheduler::AddDraw(Request* r, std::int32_t choice, const LogitRow& row) {
  Choice& c = r->choices[Index(choice)];
  std::vector<LogitRow>& rows = step_->plan.logit_rows;
  c.last_draw = static_cast<std::int32_t>(rows.size());
  step_->draws.push_back({r->part, choice, c.last_draw});
  rows.push_back(row);
  rows.back().sampling.history = c.history;
  ++c.draws;
}

}  // namespace berth
