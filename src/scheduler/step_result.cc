// What a step leaves behind: tokens, computed blocks, and who has which part of its time.
#include <algorithm>

#include "base/check.h"
#include "base/planted_bug.h"
#include "scheduler/scheduler.h"

namespace berth {
namespace {

std::size_t Index(std::int64_t i) { return static_cast<std::size_t>(i); }

// So that a model of nothing but zeros splits a step equally.
constexpr double kLeastCost = 1e-12;

}  // namespace

std::span<const DrawnToken> Scheduler::ApplyStep(const StepResult& result) {
  BERTH_CHECK(result.step == step_.step && result.logits.size() == step_.logit_rows.size());
  moved_ends_.clear();
  shares_.clear();
  double total_cost = 0.0;
  for (Request* r : stepped_) {
    StepShare share = TakeRows(r);
    share.share += kLeastCost + cost_model_.Seconds({0, 0, 0, 0, r->copies}, 0.0);
    share.prefills = share.prefills || r->copies > 0;
    total_cost += share.share;
    shares_.push_back(share);
    if (r->copies > 0) FinishSwap(r);
    r->copies = 0;
    r->in_step = false;
  }
  stepped_.clear();
  for (StepShare& share : shares_) {
    share.share /= total_cost;
    share.recompute_share /= total_cost;
  }
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    DrawnToken& drawn = drawn_[i];
    drawn.token = result.logits[Index(drawn.logit_row)].token;
    drawn_from_[i]->choices[Index(drawn.choice)].history.push_back(drawn.token);
  }
  // Prefills that got no chunk lost a step against what was foreseen.
  for (const Prefill& p : prefills_) {
    if (p.chunk == 0) moved_ends_.push_back({p.request->spec.key, 0});
  }
  for (StepsLeft& moved : moved_ends_) {
    const Request& r = at(moved.key);
    moved.steps = Left(r, r.choices[Index(Leader(r))].stored);
  }
  if (result.busy > Duration(0)) cost_model_.Observe(work_, result.busy);
  last_work_ = work_;
  last_work_.swapped_blocks = 0;  // copies are made once
  return drawn_;
}

// The request's rows are computed. Returns what they cost, by prediction.
StepShare Scheduler::TakeRows(Request* r) {
  const std::int64_t width = pool_->shape().block_tokens;
  StepShare result{.key = r->spec.key};
  bool any = false;
  bool all_decoded = r->choices.size() == 1;
  for (std::size_t q = 0; q < r->choices.size(); ++q) {
    Choice& c = r->choices[q];
    if (c.planned == 0) continue;
    any = true;
    const bool decoded = IsDecoding(*r, c);
    all_decoded = all_decoded && decoded;
    result.prefills = result.prefills || !decoded;
    const double cost = PredictedCost(*r, c);
    result.share += cost;
    const std::int64_t again = std::clamp<std::int64_t>(c.highest_stored - c.stored, 0, c.planned);
    result.recompute_share += cost * static_cast<double>(again) / static_cast<double>(c.planned);
    result.recomputed_tokens += again;
    r->recomputed_tokens += again;
    recomputed_tokens_ += again;
    c.stored += c.planned;
    c.highest_stored = std::max(c.highest_stored, c.stored);
    computed_tokens_ += c.planned;
    const bool fills_a_block = c.stored / width > (c.stored - c.planned) / width;
    c.planned = 0;
    if (fills_a_block) r->blocks->MarkComputed(static_cast<std::int32_t>(q), c.history, c.stored);
  }
  if (!any) return result;
  // What the leader computed of the prompt is there for all choices.
  const std::int64_t leader_stored = r->choices[Index(Leader(*r))].stored;
  const std::int64_t common = r->forked ? std::min(leader_stored, SharedTokens(*r)) : leader_stored;
  if (r->choices.size() > 1 && common >= SharedTokens(*r)) {
    for (Choice& c : r->choices) c.stored = std::max(c.stored, common);
  }
  if (!all_decoded) moved_ends_.push_back({r->spec.key, 0});
  return result;
}

// Of a row of the step, before its tokens count as stored; a row's part of what every step costs included.
double Scheduler::PredictedCost(const Request& r, const Choice& c) const {
  const std::int64_t context = c.stored + c.planned;
  StepWork row;
  if (IsDecoding(r, c)) {
    row.decode_sequences = 1;
    row.decode_kv_tokens = context;
  } else {
    row.prefill_tokens = c.planned;
    row.prefill_kv_products = c.planned * context;
  }
  return cost_model_.Seconds(row, 1.0 / static_cast<double>(step_.rows.size()));
}

std::span<const RequestKey> Scheduler::DropStep() {
  dropped_.clear();
  draft_.clear();
  draft_block_ids_.clear();
  for (Request* r : stepped_) {
    r->copies = 0;
    r->in_step = false;
    if (Planted(PlantedBug::kFailedSwapOutKept) && !r->blocks.has_value()) {
      r->host->state = HostCopy::State::kThere;
    } else {
      r->host.reset();  // what was not copied out is computed again; what was not copied in ends
    }
    if (!r->blocks.has_value()) continue;
    dropped_.push_back(r->spec.key);
    for (Choice& c : r->choices) {
      if (Planted(PlantedBug::kFailedStepIndexed) && c.planned > 0) {
        r->blocks->MarkComputed(static_cast<std::int32_t>(&c - r->choices.data()), c.history, c.stored + c.planned);
      }
      c.planned = 0;
    }
  }
  stepped_.clear();
  return dropped_;
}

}  // namespace berth
