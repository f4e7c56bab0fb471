// Rows of logits to be sampled, by the CPU backend's Sampler and LogSoftmax and, all in one launch, by the kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "berth/step.h"
#include "emulation/device_array.h"
#include "kernels/cuda/guarded_array.h"
#include "kernels/cuda/sampling.h"
#include "runner/log_softmax.h"
#include "runner/sampler.h"

namespace berth::cuda {

// What a row of a step asks for, as the engine has it.
struct RowCase {
  std::vector<float> logits;
  SamplingSpec spec;
  std::vector<TokenId> history;
  std::int32_t prompt_tokens = 0;
  std::vector<TokenId> banned;
  std::int32_t choice_index = 0;
  TokenId target = kNoToken;
  std::int32_t top_logprobs = kNoLogprobs;
  bool carries_last = false;  // the history's last id is in the step's token ids alone

  SamplingInput input() const { return {&spec, choice_index, history, prompt_tokens, banned}; }
};

struct RowResult {
  TokenId token = kNoToken;
  float logprob = 0.0F;
  std::vector<TopLogprob> top;
};

inline RowResult OnCpu(const RowCase& row) {
  const cpu::OpsKernels& ops = cpu::GetOpsKernels(cpu::DetectCpuLevel());
  std::vector<float> scratch;
  const LogSoftmax softmax(ops, row.logits, &scratch);
  RowResult result;
  result.token = row.target != kNoToken ? row.target : Sampler(ops).Sample(row.logits, row.input());
  result.logprob = softmax.Of(result.token);
  softmax.Top(std::max(row.top_logprobs, 0), &result.top);
  return result;
}

inline std::vector<float> RandomLogits(std::size_t size, unsigned seed, float deviation = 3.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0F, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = distribution(generator);
  return logits;
}

// All rows in one launch.
class Batch {
 public:
  explicit Batch(const std::vector<RowCase>& rows) {
    for (const RowCase& row : rows) Add(row);
  }

  // adjusted: the logits that the draws were made from. What no row asks for is NaN.
  std::vector<RowResult> Run(std::vector<float>* adjusted = nullptr) const {
    const GuardedArray<float> logits(logits_);
    const emulation::DeviceArray<SamplingRow> rows(rows_);
    const emulation::DeviceArray<std::int32_t> ids(ids_);
    const emulation::DeviceArray<float> biases(biases_);
    const emulation::DeviceArray<std::int32_t> token_ids(token_ids_);
    const GuardedArray<float> raw(ids_.size());
    const GuardedArray<std::int32_t> tokens(rows_.size());
    const GuardedArray<float> logprobs(rows_.size());
    const GuardedArray<std::int32_t> top_ids(static_cast<std::size_t>(num_top_));
    const GuardedArray<float> top_logprobs(static_cast<std::size_t>(num_top_));
    EXPECT_EQ(LaunchSampling({.logits = logits.data(),
                              .rows = rows.data(),
                              .ids = ids.data(),
                              .biases = biases.data(),
                              .token_ids = token_ids.data(),
                              .raw_logits = raw.data(),
                              .tokens = tokens.data(),
                              .logprobs = logprobs.data(),
                              .top_ids = top_ids.data(),
                              .top_logprobs = top_logprobs.data(),
                              .num_rows = static_cast<std::int32_t>(rows_.size()),
                              .vocab_size = static_cast<std::int32_t>(logits_.size() / rows_.size())},
                             nullptr),
              cudaSuccess);
    (void)raw.Read();
    if (adjusted != nullptr) *adjusted = logits.Read();
    return Unpack(tokens.Read(), logprobs.Read(), top_ids.Read(), top_logprobs.Read());
  }

 private:
  void Add(const RowCase& row) {
    SamplingRow packed{};
    packed.temperature = row.spec.temperature;
    packed.top_p = row.spec.top_p;
    packed.min_p = row.spec.min_p;
    packed.repetition_penalty = row.spec.repetition_penalty;
    packed.presence_penalty = row.spec.presence_penalty;
    packed.frequency_penalty = row.spec.frequency_penalty;
    packed.top_k = row.spec.top_k;
    packed.choice_index = row.choice_index;
    packed.seed = row.spec.seed;
    packed.position = static_cast<std::int64_t>(row.history.size());
    packed.target = row.target == kNoToken ? -1 : row.target;
    packed.top_logprobs = row.top_logprobs;
    packed.top_begin = num_top_;
    packed.prompt_tokens = row.prompt_tokens;
    packed.last_token = -1;
    std::vector<TokenId> history = row.history;
    if (row.carries_last) {
      packed.last_token = static_cast<std::int32_t>(token_ids_.size());
      token_ids_.push_back(history.back());
      history.pop_back();
    }
    packed.history = AddIds(history);
    packed.banned = AddIds(row.banned);
    packed.bias = {static_cast<std::int32_t>(ids_.size()), static_cast<std::int32_t>(row.spec.logit_bias.size())};
    for (const auto& [id, bias] : row.spec.logit_bias) {
      ids_.push_back(id);
      biases_.push_back(bias);
    }
    num_top_ += std::max(row.top_logprobs, 0);
    logits_.insert(logits_.end(), row.logits.begin(), row.logits.end());
    rows_.push_back(packed);
  }

  SamplingIds AddIds(const std::vector<TokenId>& ids) {
    const SamplingIds part{static_cast<std::int32_t>(ids_.size()), static_cast<std::int32_t>(ids.size())};
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    biases_.resize(ids_.size(), std::numeric_limits<float>::quiet_NaN());
    return part;
  }

  std::vector<RowResult> Unpack(const std::vector<std::int32_t>& tokens, const std::vector<float>& logprobs,
                                const std::vector<std::int32_t>& top_ids,
                                const std::vector<float>& top_logprobs) const {
    std::vector<RowResult> results(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      results[i].token = tokens[i];
      results[i].logprob = logprobs[i];
      for (std::int32_t j = 0; j < rows_[i].top_logprobs; ++j) {
        const auto at = static_cast<std::size_t>(rows_[i].top_begin + j);
        results[i].top.push_back({top_ids[at], top_logprobs[at]});
      }
    }
    return results;
  }

  std::vector<float> logits_;
  std::vector<SamplingRow> rows_;
  std::vector<std::int32_t> ids_ = {0};  // not empty
  std::vector<float> biases_ = {std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::int32_t> token_ids_ = {0};
  std::int32_t num_top_ = 0;
};

}  // namespace berth::cuda
