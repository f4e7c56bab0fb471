// What is counted of one class.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "berth/clock.h"
#include "histogram.h"

namespace berth::bench {

// What a class's callers want: the time to the first token, and of a request the mean time between its tokens.
struct Slo {
  std::optional<Duration> time_to_first_token;
  std::optional<Duration> inter_token_latency;
};

// Thread-safe.
class Tally {
 public:
  // One request that was served.
  void AddServed(const Slo& slo, Duration to_first, Duration to_last, Duration to_end, std::int64_t num_tokens);
  // One that ended otherwise: refused before anything came of it, or failed.
  void AddRefused(const std::string& reason) { Count(reason, &refused_); }
  void AddFailed(const std::string& reason) { Count(reason, &failed_); }

  std::map<std::string, std::int64_t> refused() const { return Copy(refused_); }
  std::map<std::string, std::int64_t> failed() const { return Copy(failed_); }

  // Of the requests that were due in the measured time.
  std::atomic<std::int64_t> due{0};
  std::atomic<std::int64_t> served{0};
  std::atomic<std::int64_t> met_slo{0};
  std::atomic<std::int64_t> cancelled{0};   // as the workload wanted
  std::atomic<std::int64_t> unfinished{0};  // when the time was over
  std::atomic<std::int64_t> not_sent{0};    // too many were open already
  Histogram first_token;                    // this and the next count from when the request was due
  Histogram end_to_end;
  Histogram per_token;  // of a request: the mean time between its tokens

  // What came in the measured time, of whichever request.
  std::atomic<std::int64_t> tokens{0};
  std::atomic<std::int64_t> messages{0};  // that carry tokens
  Histogram between_messages;

 private:
  using Reasons = std::map<std::string, std::int64_t>;
  void Count(const std::string& reason, Reasons* reasons);
  Reasons Copy(const Reasons& reasons) const;

  mutable std::mutex mutex_;
  Reasons refused_;  // guarded by mutex_
  Reasons failed_;   // guarded by mutex_
};

inline std::int64_t Total(const std::map<std::string, std::int64_t>& reasons) {
  std::int64_t total = 0;
  for (const auto& [reason, count] : reasons) total += count;
  return total;
}

}  // namespace berth::bench
