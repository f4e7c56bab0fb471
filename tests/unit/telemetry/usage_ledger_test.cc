// The usage of the last day.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "telemetry/usage_ledger.h"

namespace berth::test {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// 2026-01-01T00:00:00Z.
constexpr UnixSeconds kStart{seconds(1767225600)};

UsageTotals Tokens(std::int64_t output_tokens) { return {.requests = 1, .output_tokens = output_tokens}; }

TEST(UsageLedgerTest, SumsByTenantAndClass) {
  UsageLedger ledger(kStart);
  ledger.Add(kStart, "acme", "batch", Tokens(1));
  ledger.Add(kStart + minutes(5), "acme", "batch", Tokens(2));
  ledger.Add(kStart + minutes(5), "acme", "interactive", Tokens(4));
  ledger.Add(kStart + minutes(5), "zeta", "batch", Tokens(8));
  const UsageReport report = ledger.Since(kStart);
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.rows[0].tenant, "acme");
  EXPECT_EQ(report.rows[0].service_class, "batch");
  EXPECT_EQ(report.rows[0].totals.requests, 2);
  EXPECT_EQ(report.rows[0].totals.output_tokens, 3);
  EXPECT_EQ(report.rows[1].totals.output_tokens, 4);
  EXPECT_EQ(report.rows[2].totals.output_tokens, 8);
}

TEST(UsageLedgerTest, AskedFromTheMiddleOfAMinuteItCountsTheWholeMinute) {
  UsageLedger ledger(kStart);
  ledger.Add(kStart + minutes(1) + seconds(10), "acme", "batch", Tokens(1));
  ledger.Add(kStart + minutes(2) + seconds(10), "acme", "batch", Tokens(2));
  const UsageReport report = ledger.Since(kStart + minutes(2) + seconds(50));
  EXPECT_EQ(report.from, kStart + minutes(2));
  EXPECT_TRUE(report.complete);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].totals.output_tokens, 2);
}

TEST(UsageLedgerTest, SaysWhenItDoesNotReachBack) {
  UsageLedger ledger(kStart);
  const UsageReport report = ledger.Since(kStart - hours(1));
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.from, kStart);
  EXPECT_TRUE(report.rows.empty());
}

TEST(UsageLedgerTest, KeepsADayAndNoMore) {
  UsageLedger ledger(kStart);
  ledger.Add(kStart, "acme", "batch", Tokens(1));
  ledger.Add(kStart + hours(24) - minutes(1), "acme", "batch", Tokens(2));
  EXPECT_EQ(ledger.Since(kStart).rows.at(0).totals.output_tokens, 3);
  ledger.Add(kStart + hours(24), "acme", "batch", Tokens(4));
  const UsageReport report = ledger.Since(kStart);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.from, kStart + minutes(1));
  EXPECT_EQ(report.rows.at(0).totals.output_tokens, 6);
}

TEST(UsageLedgerTest, ForgetsTheOldestMinutesWhenItIsFull) {
  UsageLedger ledger(kStart, /*max_rows=*/10);
  for (int minute = 0; minute < 6; ++minute) {
    for (int tenant = 0; tenant < 4; ++tenant) {
      ledger.Add(kStart + minutes(minute), "t" + std::to_string(tenant), "batch", Tokens(1));
    }
  }
  const UsageReport report = ledger.Since(kStart);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.from, kStart + minutes(4));
  ASSERT_EQ(report.rows.size(), 4U);
  EXPECT_EQ(report.rows[0].totals.requests, 2);
}

TEST(UsageLedgerTest, OneMinuteIsKeptWholeHoweverManyTenants) {
  UsageLedger ledger(kStart, /*max_rows=*/2);
  for (int tenant = 0; tenant < 5; ++tenant) ledger.Add(kStart, "t" + std::to_string(tenant), "batch", Tokens(1));
  EXPECT_EQ(ledger.Since(kStart).rows.size(), 5U);
}

TEST(UsageLedgerTest, AClockThatFallsBackLosesNothing) {
  UsageLedger ledger(kStart);
  ledger.Add(kStart + minutes(10), "acme", "batch", Tokens(1));
  ledger.Add(kStart + minutes(3), "acme", "batch", Tokens(2));
  EXPECT_EQ(ledger.Since(kStart + minutes(10)).rows.at(0).totals.output_tokens, 3);
}

TEST(UsageLedgerTest, CsvIsForSpreadsheets) {
  UsageLedger ledger(kStart);
  ledger.Add(kStart, "a,\"b\"", "batch",
             {.requests = 2,
              .prompt_tokens = 30,
              .cached_tokens = 16,
              .output_tokens = 7,
              .kv_block_seconds = 1.25,
              .held_block_seconds = 0.5,
              .accelerator_seconds = 0.125});
  EXPECT_EQ(UsageCsv(ledger.Since(kStart)),
            "# requests that ended since 2026-01-01T00:00:00Z\n"
            "tenant,class,requests,prompt_tokens,cached_tokens,output_tokens,kv_block_seconds,held_block_seconds,"
            "accelerator_seconds\n"
            "\"a,\"\"b\"\"\",batch,2,30,16,7,1.250,0.500,0.125\n");
}

TEST(UsageLedgerTest, CsvSaysWhatIsMissing) {
  UsageLedger ledger(kStart);
  EXPECT_NE(UsageCsv(ledger.Since(kStart - minutes(1))).find("\n# what ended before that is not kept\n"),
            std::string::npos);
}

}  // namespace
}  // namespace berth::test
