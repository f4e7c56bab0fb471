// What each tenant used in each class, minute by minute, for the last day.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth {

using UnixSeconds = std::chrono::sys_seconds;

struct UsageTotals {
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;
  double kv_block_seconds = 0.0;  // as reserved: the bill
  double held_block_seconds = 0.0;
  double accelerator_seconds = 0.0;

  void Add(const UsageTotals& more);
};

struct UsageRow {
  std::string tenant;
  std::string service_class;
  UsageTotals totals;
};

struct UsageReport {
  UnixSeconds from{};          // what ended from here on is in it: the asked time, cut to its minute
  bool complete = true;        // false: the ledger does not reach back to the asked time, and `from` is where it begins
  std::vector<UsageRow> rows;  // by tenant, then class
};

// Counts a request in the minute in which it ended. Thread-safe.
class UsageLedger {
 public:
  static constexpr int kMinutesKept = 24 * 60;
  // A minute has a row for each pair of tenant and class that used something. Beyond so many rows in all (64 MB) the
  // oldest minutes go early.
  static constexpr std::size_t kDefaultMaxRows = 500'000;

  explicit UsageLedger(UnixSeconds start, std::size_t max_rows = kDefaultMaxRows);

  // Times that fall behind count as the latest one so far.
  void Add(UnixSeconds end, std::string_view tenant, std::string_view service_class, const UsageTotals& totals);

  UsageReport Since(UnixSeconds since) const;

 private:
  using Minute = std::chrono::time_point<std::chrono::system_clock, std::chrono::minutes>;
  using NameId = std::int32_t;
  struct MinuteTotals {
    Minute minute{};
    std::map<std::pair<NameId, NameId>, UsageTotals> rows;  // tenant, class
  };

  NameId Intern(std::string_view name);
  void DropOldest();

  const std::size_t max_rows_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::map<std::string, NameId, std::less<>> ids_;
  std::vector<std::string> names_;
  std::deque<MinuteTotals> minutes_;  // rising
  std::size_t num_rows_ = 0;
  Minute kept_from_;
};

// A CSV table (RFC 4180) under a header line. What the reader must know of its range stands in lines that begin with #.
std::string UsageCsv(const UsageReport& report);

}  // namespace berth
