#include "telemetry/usage_ledger.h"

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace berth {
namespace {

std::string Iso8601(UnixSeconds time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                         utc.tm_min, utc.tm_sec);
}

std::string Quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

void UsageTotals::Add(const UsageTotals& more) {
  requests += more.requests;
  prompt_tokens += more.prompt_tokens;
  cached_tokens += more.cached_tokens;
  output_tokens += more.output_tokens;
  kv_block_seconds += more.kv_block_seconds;
  held_block_seconds += more.held_block_seconds;
  accelerator_seconds += more.accelerator_seconds;
}

// The first minute is not a whole one, and still all that there is of it.
UsageLedger::UsageLedger(UnixSeconds start, std::size_t max_rows)
    : max_rows_(max_rows), kept_from_(std::chrono::floor<std::chrono::minutes>(start)) {}

UsageLedger::NameId UsageLedger::Intern(std::string_view name) {
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  const auto id = static_cast<NameId>(names_.size());
  names_.emplace_back(name);
  ids_.emplace(name, id);
  return id;
}

void UsageLedger::DropOldest() {
  num_rows_ -= minutes_.front().rows.size();
  minutes_.pop_front();
}

void UsageLedger::Add(UnixSeconds end, std::string_view tenant, std::string_view service_class,
                      const UsageTotals& totals) {
  const std::lock_guard lock(mutex_);
  Minute minute = std::chrono::floor<std::chrono::minutes>(end);
  if (!minutes_.empty()) minute = std::max(minute, minutes_.back().minute);
  if (minutes_.empty() || minutes_.back().minute < minute) minutes_.push_back({.minute = minute, .rows = {}});
  const auto [row, is_new] = minutes_.back().rows.try_emplace({Intern(tenant), Intern(service_class)});
  row->second.Add(totals);
  if (is_new) ++num_rows_;

  kept_from_ = std::max(kept_from_, minute - std::chrono::minutes(kMinutesKept - 1));
  while (minutes_.front().minute < kept_from_) DropOldest();
  while (num_rows_ > max_rows_ && minutes_.size() > 1) {
    kept_from_ = minutes_.front().minute + std::chrono::minutes(1);
    DropOldest();
  }
}

UsageReport UsageLedger::Since(UnixSeconds since) const {
  const std::lock_guard lock(mutex_);
  Minute from = std::chrono::floor<std::chrono::minutes>(since);
  UsageReport report;
  report.complete = from >= kept_from_;
  from = std::max(from, kept_from_);
  report.from = from;
  std::map<std::pair<std::string, std::string>, UsageTotals> sums;
  for (const MinuteTotals& minute : minutes_) {
    if (minute.minute < from) continue;
    for (const auto& [names, totals] : minute.rows) {
      sums[{names_[static_cast<std::size_t>(names.first)], names_[static_cast<std::size_t>(names.second)]}].Add(totals);
    }
  }
  for (const auto& [names, totals] : sums) {
    report.rows.push_back({.tenant = names.first, .service_class = names.second, .totals = totals});
  }
  return report;
}

std::string UsageCsv(const UsageReport& report) {
  std::string csv = absl::StrCat("# requests that ended since ", Iso8601(report.from), "\n");
  if (!report.complete) absl::StrAppend(&csv, "# what ended before that is not kept\n");
  absl::StrAppend(&csv,
                  "tenant,class,requests,prompt_tokens,cached_tokens,output_tokens,kv_block_seconds,held_block_seconds,"
                  "accelerator_seconds\n");
  for (const UsageRow& row : report.rows) {
    const UsageTotals& t = row.totals;
    absl::StrAppendFormat(&csv, "%s,%s,%d,%d,%d,%d,%.3f,%.3f,%.3f\n", Quoted(row.tenant), Quoted(row.service_class),
                          t.requests, t.prompt_tokens, t.cached_tokens, t.output_tokens, t.kv_block_seconds,
                          t.held_block_seconds, t.accelerator_seconds);
  }
  return csv;
}

}  // namespace berth
