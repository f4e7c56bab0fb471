// What is preempted goes to the host's memory where computing it again would cost more, and comes back from there.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"
#include "scheduler/scheduler.h"

namespace berth {
// What the request has computed, as long as it still holds its blocks.
Scheduler::Leaving Scheduler::Describe(const Request& r) const {
  Leaving leaving;
  leaving.key = r.spec.key;
  leaving.copy = std::make_unique<HostCopy>();
  const std::int64_t width = pool_->shape().block_tokens;
  const auto add = [&](std::span<const BlockId> blocks, std::int64_t tokens) {
    for (std::int64_t i = 0; i * width < tokens; ++i) {
      leaving.blocks.push_back({blocks[Index(i)], std::min(width, tokens - i * width)});
    }
  };
  const std::int32_t leader = Leader(r);
  HostCopy& copy = *leaving.copy;
  copy.shared_tokens = std::min(r.choices[Index(leader)].stored, SharedTokens(r));
  copy.own_tokens.resize(r.choices.size());
  add(r.blocks->shared_blocks(), copy.shared_tokens);
  for (std::size_t q = 0; q < r.choices.size(); ++q) {
    const auto choice = static_cast<std::int32_t>(q);
    // Before the choices part, only the first one's block of the prompt's end is computed.
    if (r.choices[q].ended || (!r.forked && choice != leader)) continue;
    copy.own_tokens[q] = std::max<std::int64_t>(0, r.choices[q].stored - SharedTokens(r));
    add(r.blocks->own_blocks(choice), copy.own_tokens[q]);
  }
  return leaving;
}

// Copying out what is there, and in what will be gone by then, is predicted to take less time than computing that
// again.
bool Scheduler::SwapPays(const Request& r, const Leaving& leaving) const {
  const std::int64_t width = pool_->shape().block_tokens;
  // What is promised by now takes the blocks that have been free longest; these have just become free, the prompt's
  // last.
  std::int64_t surviving = pool_->available_blocks();
  std::int64_t lost_blocks = 0;
  std::int64_t lost_tokens = 0;
  for (const HeldBlock& held : leaving.blocks) {
    const bool findable = held.tokens == width && r.spec.prompt_logprobs == kNoLogprobs;
    if (findable && (pool_->references(held.block) > 0 || surviving-- > 0)) continue;
    ++lost_blocks;
    lost_tokens += held.tokens;
  }
  const std::int64_t context = r.choices[Index(Leader(r))].stored;
  const double recompute = cost_model_.Seconds({lost_tokens, 0, 0, lost_tokens * context}, 0.0);
  const double copies = cost_model_.Seconds({0, 0, 0, 0, std::ssize(leaving.blocks) + lost_blocks}, 0.0);
  return copies < recompute;
}

void Scheduler::SwapOut(Leaving* leaving) {
  Request& r = at(leaving->key);
  if (leaving->blocks.empty() || !SwapPays(r, *leaving)) return;
  std::optional<HostHolding> holding = pool_->host().Take(std::ssize(leaving->blocks));
  if (!holding.has_value()) {
    ++failed_swaps_;
    return;
  }
  for (std::size_t i = 0; i < leaving->blocks.size(); ++i) {
    swap_out_.push_back({&r, -1, {leaving->blocks[i].block, holding->blocks()[i]}});
  }
  leaving->copy->holding = *std::move(holding);
  r.host = std::move(leaving->copy);
}

// A request that was started again: what the prefix cache did not have comes from the host's memory.
void Scheduler::SwapIn(Request* r) {
  if (r->host == nullptr) return;
  HostCopy& copy = *r->host;
  if (copy.state != HostCopy::State::kThere) {
    DropHostCopy(r);
    return;
  }
  copy.state = HostCopy::State::kReturning;
  const std::int64_t shared_tokens = SharedTokens(*r);
  const std::int32_t leader = Leader(*r);
  r->choices[Index(leader)].stored =
      std::max(r->choices[Index(leader)].stored, PlanSwapIn(r, leader, 0, copy.shared_tokens, 0));
  const std::int64_t common = r->choices[Index(leader)].stored;
  for (std::size_t q = 0; q < r->choices.size() && common >= shared_tokens; ++q) {
    const auto choice = static_cast<std::int32_t>(q);
    Choice& c = r->choices[q];
    if (c.ended || (!r->forked && choice != leader)) continue;
    const std::int64_t own =
        PlanSwapIn(r, choice, shared_tokens, copy.own_tokens[q], copy.OwnBegin(choice, pool_->shape().block_tokens));
    c.stored = std::max({c.stored, shared_tokens, shared_tokens + own});
  }
  for (Choice& c : r->choices) c.ahead = c.stored;
  ForgetHostCopyIfUnused(r);
}

// The choice ended before its blocks were copied back.
void Scheduler::DropSwapIn(Request* r, std::int32_t choice) {
  if (r->host == nullptr) return;
  std::erase_if(swap_in_, [&](const PendingSwap& swap) { return swap.request == r && swap.choice == choice; });
  ForgetHostCopyIfUnused(r);
}

// Of a running request: there is nothing that the next step copies back.
void Scheduler::ForgetHostCopyIfUnused(Request* r) {
  const bool used = std::ranges::any_of(swap_in_, [&](const PendingSwap& swap) { return swap.request == r; });
  if (!used) r->host.reset();
}

// Plans the copies in of `tokens` tokens that lie from position `first` on in the choice's table, and in the host's
// blocks from the `host_begin`th on. Blocks that the request holds already were found in the cache. Returns how many of
// the tokens will be there: a block that is being copied out in the same step is no place to copy to.
std::int64_t Scheduler::PlanSwapIn(Request* r, std::int32_t choice, std::int64_t first, std::int64_t tokens,
                                   std::int64_t host_begin) {
  const std::int64_t width = pool_->shape().block_tokens;
  const bool shared = first < SharedTokens(*r);
  const auto blocks = [&] { return shared ? r->blocks->shared_blocks() : r->blocks->own_blocks(choice); };
  const std::int64_t found = std::ssize(blocks());
  if (tokens <= found * width) return std::min(tokens, found * width);
  r->blocks->Cover(choice, first + tokens);
  for (std::int64_t i = found; i * width < tokens; ++i) {
    const BlockId block = blocks()[Index(i)];
    if (leaves_[Index(block)]) return i * width;
    swap_in_.push_back({r, shared ? -1 : choice, {block, r->host->holding.blocks()[Index(host_begin + i)]}});
  }
  return tokens;
}

void Scheduler::CommitSwaps(const AdmissionPlan& plan) {
  for (Leaving& leaving : leaving_) {
    if (requests_.contains(leaving.key)) SwapOut(&leaving);
  }
  leaving_.clear();
  leaves_.resize(Index(pool_->shape().num_blocks));
  for (const PendingSwap& swap : swap_out_) leaves_[Index(swap.copy.block)] = true;
  for (const AdmissionPlan::Start& start : plan.admit) SwapIn(&at(start.key));
  for (const PendingSwap& swap : swap_out_) leaves_[Index(swap.copy.block)] = false;
}

void Scheduler::DropHostCopy(Request* r) {
  if (r->host == nullptr) return;
  const auto is_its = [&](const PendingSwap& swap) { return swap.request == r; };
  std::erase_if(swap_out_, is_its);
  std::erase_if(swap_in_, is_its);
  r->host.reset();
}

// The request is preempted again while what it had comes back: the host's memory still has all of it.
void Scheduler::KeepHostCopy(Request* r) {
  std::erase_if(swap_in_, [&](const PendingSwap& swap) { return swap.request == r; });
  r->host->state = HostCopy::State::kThere;
}

void Scheduler::EmitSwaps() {
  for (const PendingSwap& swap : swap_out_) {
    step_->plan.swap_out.push_back(swap.copy);
    ++PartOf(swap.request).copies_out;
    swap.request->host->state = HostCopy::State::kThere;  // for every later step
  }
  for (const PendingSwap& swap : swap_in_) {
    step_->plan.swap_in.push_back(swap.copy);
    ++PartOf(swap.request).copies_in;
  }
  step_->work.swapped_blocks += std::ssize(swap_out_) + std::ssize(swap_in_);
  swap_out_.clear();
  swap_in_.clear();
  if (Planted(PlantedBug::kSwapInSkipped) && !step_->plan.swap_in.empty()) step_->plan.swap_in.pop_back();
}

// The step with the request's copies succeeded.
void Scheduler::FinishSwaps(const Part& part) {
  swapped_out_blocks_ += part.copies_out;
  swapped_in_blocks_ += part.copies_in;
  if (part.copies_in == 0 || !Runs(part)) return;
  Request& r = *part.request;
  r.host.reset();
  for (std::size_t q = 0; q < r.choices.size(); ++q) {
    const Choice& c = r.choices[q];
    if (!c.ended) r.blocks->MarkComputed(static_cast<std::int32_t>(q), c.history, c.stored);
  }
}

}  // namespace berth
