// What is asked for: class, prompt and length of each request.
#pragma once

#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/v1/inference.pb.h"
#include "trace.h"

namespace berth::bench {

struct ClassShare {
  std::string name;
  double weight = 1.0;
};

struct WorkloadOptions {
  std::vector<ClassShare> mix;  // at least one
  std::int32_t prompt_tokens = 128;
  std::int32_t output_tokens = 128;
  bool vary = false;       // lengths from 1 to these
  bool text = false;       // prompts are text and not token ids
  double cancelled = 0.0;  // share of the requests that are given up in the middle
  std::int32_t vocab_size = 0;
  std::int32_t context_tokens = 0;  // of the server; longer prompts of a trace are cut
  std::uint64_t seed = 0;
};

struct Job {
  std::size_t service_class = 0;  // index into mix
  v1::GenerateRequest request;
  std::int64_t cancel_after_tokens = 0;  // 0 = never
};

// Thread-safe. Prompts are random and so distinct: nothing is found in the prefix cache. Output goes on past any end of
// text, so that each request costs what was asked.
class Workload {
 public:
  explicit Workload(const WorkloadOptions& options);

  Job Next();
  Job Next(const Arrival& arrival);
  // Until the next arrival, at `rate` a second (a Poisson process).
  Duration Gap(double rate);

  const WorkloadOptions& options() const { return options_; }

 private:
  std::int32_t LengthLocked(std::int32_t most);
  Job MakeLocked(std::int32_t prompt_tokens, std::int32_t output_tokens);
  void FillPromptLocked(std::int32_t tokens, v1::GenerateRequest* request);

  const WorkloadOptions options_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::mt19937_64 random_;
  std::discrete_distribution<std::size_t> classes_;
};

}  // namespace berth::bench
