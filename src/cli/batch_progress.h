// How far `berth batch` is, on standard error: a bar where a person looks on, now and then a line where not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "berth/clock.h"

namespace berth::cli {

struct BatchCounts {
  std::optional<std::int64_t> lines;  // of the whole input, where it is known
  std::int64_t skipped = 0;           // answered by an earlier run
  std::int64_t answered = 0;
  std::int64_t failed = 0;
  std::int64_t prompt_tokens = 0;  // of what was answered
  std::int64_t output_tokens = 0;  // as they come
  Duration elapsed{};

  std::int64_t ended() const { return skipped + answered + failed; }
  double tokens_per_second() const;
};

// "412 of 1,000 lines · 3 failed · 812 tokens/s · 1:23 left"
std::string ProgressText(const BatchCounts& counts);
// "[#####.......] 41% · " in front of it, cut to `columns`.
std::string ProgressBar(const BatchCounts& counts, int columns);
// "1:05", "2:03:04"
std::string MinutesAndSeconds(double seconds);

// Thread-safe. Shows itself from its construction until Stop.
class BatchProgress {
 public:
  // `lines` and `skipped` as in BatchCounts.
  BatchProgress(std::optional<std::int64_t> lines, std::int64_t skipped);
  ~BatchProgress();

  void AddTokens(std::int64_t tokens);
  void AddAnswered(std::int64_t prompt_tokens);
  void AddFailed();
  // Shows no more and leaves nothing behind on a terminal.
  void Stop();
  BatchCounts counts() const;

 private:
  void Run();
  BatchCounts CountsLocked() const;

  const bool terminal_;
  const TimePoint start_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  BatchCounts counts_;    // guarded by mutex_; elapsed is not kept
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace berth::cli
