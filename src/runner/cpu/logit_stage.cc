#include "runner/cpu/logit_stage.h"

#include "runner/log_softmax.h"

namespace berth {

LogitStage::LogitStage(std::int32_t vocab_size, const cpu::OpsKernels& ops, int threads)
    : vocab_size_(vocab_size), ops_(ops), threads_(static_cast<std::size_t>(threads), {Sampler(ops), {}, {}}) {}

void LogitStage::LayOut(MemoryLayout& layout) {
  logits_ = layout.Take<float>(2 * static_cast<std::size_t>(kGroupRows), static_cast<std::size_t>(vocab_size_));
}

void LogitStage::Begin(std::size_t rows, StepResult* result) {
  result_ = result;
  result_->logits.assign(rows, LogitResult{});
  result_->top.clear();
  answered_by_.assign(rows, 0);
  for (ThreadState& state : threads_) state.top.clear();
}

void LogitStage::Answer(const LogitRow& row, std::size_t index, int thread) {
  const auto vocab_size = static_cast<std::size_t>(vocab_size_);
  const std::span<const float> logits(logits_ + index % kGroupRows * vocab_size, vocab_size);
  ThreadState& state = threads_[static_cast<std::size_t>(thread)];
  LogitResult& result = result_->logits[index];
  answered_by_[index] = thread;
  const bool has_target = row.target != kNoToken;
  result.token = has_target ? row.target : state.sampler.Sample(logits, row.sampling);
  if (!has_target && row.top_logprobs < 0) return;
  const LogSoftmax log_softmax(ops_, logits, &state.scratch);
  result.logprob = log_softmax.Of(result.token);
  if (row.top_logprobs > 0) {
    result.top_begin = static_cast<std::int32_t>(state.top.size());
    result.num_top = row.top_logprobs;
    log_softmax.Top(row.top_logprobs, &state.top);
  }
}

void LogitStage::Finish() {
  for (std::size_t i = 0; i < result_->logits.size(); ++i) {
    LogitResult& result = result_->logits[i];
    if (result.num_top == 0) continue;
    const std::vector<TopLogprob>& from = threads_[static_cast<std::size_t>(answered_by_[i])].top;
    const auto begin = from.begin() + result.top_begin;
    result.top_begin = static_cast<std::int32_t>(result_->top.size());
    result_->top.insert(result_->top.end(), begin, begin + result.num_top);
  }
}

}  // namespace berth
