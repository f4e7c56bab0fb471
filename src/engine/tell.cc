// What the engine's thread tells the metrics.
#include <utility>

#include "engine/step_loop.h"

namespace berth {

void StepLoop::TellStep() {
  if (ran_.has_value()) shared_.metrics->OnStep(*std::exchange(ran_, std::nullopt));
  if (!scheduler_.has_value()) return;
  for (; told_failed_swaps_ < scheduler_->failed_swaps(); ++told_failed_swaps_) {
    shared_.metrics->OnKvAllocationFailure();
  }
}

void StepLoop::TellLoad() {
  load_.held_blocks = pool_.live_blocks();
  load_.unspent_blocks = pool_.unspent_blocks();
  load_.cached_blocks = pool_.idle_cached_blocks();
  load_.free_blocks = pool_.shape().num_blocks - load_.held_blocks - load_.cached_blocks;
  wanted_tokens_.assign(admission_.policy().classes.size(), 0);
  if (scheduler_.has_value()) scheduler_->AddWantedTokens(wanted_tokens_);
  load_.classes.resize(wanted_tokens_.size());
  for (std::size_t c = 0; c < wanted_tokens_.size(); ++c) load_.classes[c].wanted_step_tokens = wanted_tokens_[c];
  admission_.FillLoad(&load_);
  shared_.metrics->OnLoad(load_);  // first: whoever reads a load finds it told
  shared_.load->Write(load_);
}

}  // namespace berth
