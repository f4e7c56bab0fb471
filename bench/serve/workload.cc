#include "workload.h"

#include <algorithm>

namespace berth::bench {
namespace {

std::vector<double> Weights(const std::vector<ClassShare>& mix) {
  std::vector<double> weights;
  weights.reserve(mix.size());
  for (const ClassShare& share : mix) weights.push_back(share.weight);
  return weights;
}

}  // namespace

Workload::Workload(const WorkloadOptions& options) : options_(options), random_(options.seed) {
  const std::vector<double> weights = Weights(options.mix);
  classes_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
}

Job Workload::Next() {
  const std::lock_guard lock(mutex_);
  const std::int32_t prompt_tokens = LengthLocked(options_.prompt_tokens);
  return MakeLocked(prompt_tokens, LengthLocked(options_.output_tokens));
}

Job Workload::Next(const Arrival& arrival) {
  const std::lock_guard lock(mutex_);
  const std::int32_t output_tokens = std::min(arrival.output_tokens, std::max(1, options_.context_tokens / 2));
  return MakeLocked(std::min(arrival.prompt_tokens, options_.context_tokens - output_tokens), output_tokens);
}

Duration Workload::Gap(double rate) {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::exponential_distribution<double>(rate)(random_)));
}

std::int32_t Workload::LengthLocked(std::int32_t most) {
  return options_.vary ? std::uniform_int_distribution<std::int32_t>(1, most)(random_) : most;
}

Job Workload::MakeLocked(std::int32_t prompt_tokens, std::int32_t output_tokens) {
  Job job;
  job.service_class = classes_(random_);
  FillPromptLocked(prompt_tokens, &job.request);
  job.request.set_service_class(options_.mix[job.service_class].name);
  job.request.mutable_sampling()->set_temperature(0.0F);
  job.request.mutable_stopping()->set_max_output_tokens(output_tokens);
  job.request.mutable_stopping()->set_ignore_eos(true);
  job.request.mutable_output()->set_return_token_ids(true);  // a message tells how many tokens it carries
  if (std::bernoulli_distribution(options_.cancelled)(random_)) job.cancel_after_tokens = 1 + output_tokens / 2;
  return job;
}

void Workload::FillPromptLocked(std::int32_t tokens, v1::GenerateRequest* request) {
  if (options_.text) {
    // A short word is about a token.
    std::uniform_int_distribution<int> letter('a', 'z');
    std::string* const text = request->mutable_text();
    for (std::int32_t i = 0; i < tokens; ++i) {
      *text += {' ', static_cast<char>(letter(random_)), static_cast<char>(letter(random_))};
    }
    return;
  }
  // The first and the last ids of a vocabulary tend to be special.
  const std::int32_t margin = std::min(1000, options_.vocab_size / 8);
  std::uniform_int_distribution<std::int32_t> id(margin, options_.vocab_size - 1 - margin);
  auto* const ids = request->mutable_token_ids()->mutable_ids();
  ids->Reserve(tokens);
  for (std::int32_t i = 0; i < tokens; ++i) ids->Add(id(random_));
}

}  // namespace berth::bench
