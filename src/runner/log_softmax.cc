#include "runner/log_softmax.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace berth {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kLanes = 8;
// Logits looked at together: one glance tells whether any of them is among the best.
constexpr std::size_t kGlance = 64;

}  // namespace

double SumInOrder(std::span<const float> values) {
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(values[i + lane]);
  }
  for (; i < values.size(); ++i) sums[i % kLanes] += static_cast<double>(values[i]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

LogSoftmax::LogSoftmax(const cpu::OpsKernels& ops, std::span<const float> logits, std::vector<float>* scratch)
    : ops_(ops), logits_(logits), highest_(ops.highest(logits.data(), static_cast<std::int32_t>(logits.size()))) {
  if (highest_ == -kInfinity) return;
  scratch->resize(logits.size());
  ops.exp_weights(logits.data(), static_cast<std::int32_t>(logits.size()), highest_, 1.0F, scratch->data());
  log_sum_ = std::log(SumInOrder(*scratch));
}

float LogSoftmax::LogProbability(float logit) const {
  if (!(logit > -kInfinity)) return -kInfinity;
  if (highest_ == kInfinity) return logit == kInfinity ? static_cast<float>(-log_sum_) : -kInfinity;
  return static_cast<float>((static_cast<double>(logit) - static_cast<double>(highest_)) - log_sum_);
}

float LogSoftmax::Of(TokenId token) const {
  BERTH_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits_.size());
  return LogProbability(logits_[static_cast<std::size_t>(token)]);
}

void LogSoftmax::Top(std::int32_t k, std::vector<TopLogprob>* out) const {
  BERTH_CHECK(k >= 0 && static_cast<std::size_t>(k) <= logits_.size());
  if (k == 0) return;
  // A heap of the k best so far, the worst of them on top; `logprob` holds the logit until the end.
  const auto better = [](const TopLogprob& a, const TopLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token_id < b.token_id;
  };
  const auto first = static_cast<std::ptrdiff_t>(out->size());
  const auto whole = static_cast<std::size_t>(k);
  for (std::size_t begin = 0; begin < logits_.size(); begin += kGlance) {
    const std::span<const float> part = logits_.subspan(begin, std::min(kGlance, logits_.size() - begin));
    // A later token of an equal logit is no better.
    if (begin >= whole && !(ops_.highest(part.data(), static_cast<std::int32_t>(part.size())) >
                            (*out)[static_cast<std::size_t>(first)].logprob)) {
      continue;
    }
    for (std::size_t i = 0; i < part.size(); ++i) {
      const TopLogprob entry{static_cast<TokenId>(begin + i), part[i] > -kInfinity ? part[i] : -kInfinity};
      if (begin + i >= whole) {
        if (!better(entry, (*out)[static_cast<std::size_t>(first)])) continue;
        std::pop_heap(out->begin() + first, out->end(), better);
        out->back() = entry;
      } else {
        out->push_back(entry);
      }
      std::push_heap(out->begin() + first, out->end(), better);
    }
  }
  std::sort_heap(out->begin() + first, out->end(), better);
  for (auto it = out->begin() + first; it != out->end(); ++it) it->logprob = LogProbability(it->logprob);
}

}  // namespace berth
