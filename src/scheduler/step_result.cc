// What a step leaves behind: tokens, computed blocks, and who has which part of its time.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"
#include "scheduler/scheduler.h"

namespace berth {
namespace {

// So that a model of nothing but zeros splits a step equally.
constexpr double kLeastCost = 1e-12;

}  // namespace

std::span<const DrawnToken> Scheduler::ApplyStep(const StepResult& result) {
  BERTH_CHECK(in_flight_ > 0);
  PlannedStep& step = InFlight(0);
  BERTH_CHECK(result.step == step.plan.step && result.logits.size() == step.plan.logit_rows.size());
  moved_ends_.clear();
  shares_.assign(step.parts.size(), StepShare());
  for (std::size_t row = 0; row < step.rows.size(); ++row) TakeRow(&step, row);
  for (std::size_t i = 0; i < step.parts.size(); ++i) TakePart(step.parts[i], &shares_[i]);
  ScaleShares();
  TakeTargets(step);
  TakeDraws(step, result);
  oldest_ = (oldest_ + 1) % kMaxStepsInFlight;
  --in_flight_;
  NoteMovedEnds(step);
  if (result.busy > Duration(0)) cost_model_.Observe(step.work, result.busy);
  last_work_ = step.work;
  last_work_.swapped_blocks = 0;  // copies are made once
  LetGoOfBuried();
  return drawn_;
}

// The row is computed. Its share holds what it cost, by prediction.
void Scheduler::TakeRow(PlannedStep* step, std::size_t row) {
  const PlannedRow& planned = step->rows[row];
  Part& part = step->parts[Index(planned.part)];
  if (IsGhost(part, planned.choice)) return;
  Request& r = *part.request;
  Choice& c = r.choices[Index(planned.choice)];
  const StepRow& computed = step->plan.rows[row];
  BERTH_CHECK_MSG(computed.first_position == c.stored, "a row went on from where its sequence was not");
  part.any_row = true;
  part.any_other_row = part.any_other_row || !planned.decodes;
  StepShare& share = shares_[Index(planned.part)];
  const double cost = PredictedCost(*step, row);
  share.share += cost;
  const std::int64_t tokens = computed.num_tokens;
  const std::int64_t again = std::clamp<std::int64_t>(c.highest_stored - c.stored, 0, tokens);
  share.recompute_share += cost * static_cast<double>(again) / static_cast<double>(tokens);
  share.recomputed_tokens += again;
  r.recomputed_tokens += again;
  recomputed_tokens_ += again;
  c.stored += tokens;
  c.highest_stored = std::max(c.highest_stored, c.stored);
  computed_tokens_ += tokens;
  const std::int64_t width = pool_->shape().block_tokens;
  const bool fills_a_block = c.stored / width > (c.stored - tokens) / width;
  if (fills_a_block) r.blocks->MarkComputed(planned.choice, c.history, c.stored);
}

// The request's rows and copies are done. A share without a request is nobody's.
void Scheduler::TakePart(const Part& part, StepShare* share) {
  Request& r = *part.request;
  if (part.copies_out > 0 || part.copies_in > 0) FinishSwaps(part);
  const std::int64_t copies = part.copies_out + part.copies_in;
  if (r.removed || (!part.any_row && copies == 0)) {
    share->key = kNoRequest;
    return;
  }
  share->key = r.spec.key;
  share->share += kLeastCost + cost_model_.Seconds({0, 0, 0, 0, copies}, 0.0);
  share->prefills = part.any_other_row || copies > 0;
  if (!part.any_row || r.choices.size() == 1) return;
  // What the leader computed of the prompt is there for all choices.
  const std::int64_t common = CommonTokens(r, part.forked, r.choices[Index(Leader(r))].stored);
  for (Choice& c : r.choices) c.stored = std::max(c.stored, common);
}

void Scheduler::ScaleShares() {
  std::erase_if(shares_, [](const StepShare& share) { return share.key == kNoRequest; });
  double total_cost = 0.0;
  for (const StepShare& share : shares_) total_cost += share.share;
  for (StepShare& share : shares_) {
    share.share /= total_cost;
    share.recompute_share /= total_cost;
  }
}

void Scheduler::TakeTargets(const PlannedStep& step) {
  target_rows_.clear();
  for (const PlannedTargets& planned : step.targets) {
    if (!IsGhost(step.parts[Index(planned.part)], planned.choice)) target_rows_.push_back(planned.rows);
  }
}

void Scheduler::TakeDraws(const PlannedStep& step, const StepResult& result) {
  drawn_.clear();
  for (const PlannedDraw& planned : step.draws) {
    const Part& part = step.parts[Index(planned.part)];
    if (IsGhost(part, planned.choice) && !Planted(PlantedBug::kGhostTokenTaken)) continue;
    Choice& c = part.request->choices[Index(planned.choice)];
    const TokenId token = result.logits[Index(planned.logit_row)].token;
    c.history.push_back(token);
    --c.draws;
    drawn_.push_back({part.request->spec.key, planned.choice, token, planned.logit_row});
  }
}

// The plan before which the step that is applied last was still in flight has been made, or comes next.
void Scheduler::NoteMovedEnds(const PlannedStep& step) {
  for (const Part& part : step.parts) {
    if (!part.any_row || (part.request->choices.size() == 1 && !part.any_other_row)) continue;
    moved_ends_.push_back({part.request->spec.key, 0});
  }
  // Prefills that got no chunk lost a step against what was foreseen.
  for (const LeftOut& left_out : step.left_out) {
    const auto found = requests_.find(left_out.request);
    if (found == requests_.end()) continue;
    const Request& r = *found->second;
    if (r.run == left_out.run && r.blocks.has_value()) moved_ends_.push_back({left_out.request, 0});
  }
  for (StepsLeft& moved : moved_ends_) {
    const Request& r = at(moved.key);
    moved.steps = Left(r, r.choices[Index(Leader(r))].stored) + (max_steps_in_flight_ - 1 - in_flight_);
  }
}

// Of a row of the step, before its tokens count as stored; a row's part of what every step costs included.
double Scheduler::PredictedCost(const PlannedStep& step, std::size_t row) const {
  const StepRow& planned = step.plan.rows[row];
  const std::int64_t context = std::int64_t{planned.first_position} + planned.num_tokens;
  StepWork work;
  if (step.rows[row].decodes) {
    work.decode_sequences = 1;
    work.decode_kv_tokens = context;
  } else {
    work.prefill_tokens = planned.num_tokens;
    work.prefill_kv_products = planned.num_tokens * context;
  }
  return cost_model_.Seconds(work, 1.0 / static_cast<double>(step.rows.size()));
}

// Of those that no step in flight names any more.
void Scheduler::LetGoOfBuried() {
  std::erase_if(buried_, [&](const auto& r) { return in_flight_ == 0 || r->last_step < InFlight(0).plan.step; });
}

std::span<const RequestKey> Scheduler::Drop(std::int32_t nth) {
  BERTH_CHECK(nth >= 0 && nth < in_flight_);
  dropped_.clear();
  draft_.clear();
  draft_block_ids_.clear();
  const PlannedStep& step = InFlight(nth);
  for (std::size_t row = 0; row < step.rows.size(); ++row) {
    const PlannedRow& planned = step.rows[row];
    const Part& part = step.parts[Index(planned.part)];
    if (IsGhost(part, planned.choice)) continue;
    Choice& c = part.request->choices[Index(planned.choice)];
    c.ahead = c.stored;
    if (Planted(PlantedBug::kFailedStepIndexed)) {
      const std::int64_t end = std::int64_t{step.plan.rows[row].first_position} + step.plan.rows[row].num_tokens;
      part.request->blocks->MarkComputed(planned.choice, c.history, std::min(end, std::ssize(c.history)));
    }
  }
  for (const PlannedDraw& planned : step.draws) {
    const Part& part = step.parts[Index(planned.part)];
    if (!IsGhost(part, planned.choice)) --part.request->choices[Index(planned.choice)].draws;
  }
  DropParts(step);
  if (nth == 0) oldest_ = (oldest_ + 1) % kMaxStepsInFlight;
  --in_flight_;
  LetGoOfBuried();
  return dropped_;
}

void Scheduler::DropParts(const PlannedStep& step) {
  for (const Part& part : step.parts) {
    Request& r = *part.request;
    if (Runs(part)) dropped_.push_back(r.spec.key);
    // What was not copied out is computed again. What was not copied in ends, unless it is parked again: then the
    // host's memory still has it.
    const bool parked = !r.blocks.has_value();
    const bool kept = Planted(PlantedBug::kFailedSwapOutKept);
    if (part.copies_out > 0 && parked && !kept) r.host.reset();
    if (part.copies_in > 0 && Runs(part)) r.host.reset();
  }
}

}  // namespace berth
