// Callers that ask the engine in a closed loop: each sends its next request once the last one has ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "berth/clock.h"
#include "berth/event.h"
#include "berth/kv.h"
#include "engine/engine.h"

namespace berth::bench {

struct Load {
  std::int32_t streams = 1;
  std::int64_t requests = 1;  // all streams together
  std::int32_t prompt_tokens = 128;
  std::int32_t output_tokens = 128;
  bool vary = false;       // lengths from 1 to these
  double cancelled = 0.0;  // share of the requests that are given up in the middle
  std::int32_t vocab_size = 0;
};

struct Outcome {
  std::int64_t output_tokens = 0;
  std::int64_t failed = 0;  // other than by our own cancel
  Duration took{};          // from the first submission to the last end
};

// Of an engine that has room for so many streams, all in one class.
EngineOptions OptionsFor(std::int32_t streams, std::int32_t context_tokens, const KvPoolShape& pool);

// 0 where there are no values.
double Quantile(std::vector<double> values, double q);

// Prompts are random and so distinct: nothing is found in the prefix cache.
class Streams {
 public:
  Streams(Engine* engine, const Load& load, std::uint64_t seed) : engine_(engine), load_(load), random_(seed) {}

  // `all_sent` is called once every stream has sent its first request.
  Outcome Run(const std::function<void()>& all_sent = [] {});

 private:
  class Sink;
  struct End {
    std::int32_t stream = 0;
    std::int64_t output_tokens = 0;
    bool failed = false;
  };

  void Send(std::int32_t stream);
  TokenizedRequest MakeRequest();
  std::int32_t Length(std::int32_t most);
  void Report(const End& end);
  End NextEnd();

  Engine* const engine_;
  const Load load_;
  std::mt19937_64 random_;
  std::int64_t sent_ = 0;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<End> ends_;  // guarded by mutex_
};

}  // namespace berth::bench
