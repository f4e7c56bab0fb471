#include "frontend/load_report.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(LoadReportTest, SaysWhatBalancersLookFor) {
  LoadSnapshot load;
  load.free_blocks = 50;
  load.cached_blocks = 10;
  load.held_blocks = 30;
  load.unspent_blocks = 15;
  load.used_slots = 4;
  load.max_slots = 8;
  load.step_token_budget = 100;
  load.classes.resize(2);
  load.classes[0].queued_requests = 2;
  load.classes[0].waiting_blocks = 60;
  load.classes[1].queued_requests = 3;
  load.classes[1].parked_requests = 1;
  const auto report = LoadReportOf(load);
  EXPECT_EQ(report.named_metrics().size(), 2U);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("kv_cache_usage_perc"), 0.5);  // (30 + 15) of 90
  EXPECT_DOUBLE_EQ(report.named_metrics().at("num_requests_waiting"), 6.0);
  EXPECT_DOUBLE_EQ(report.application_utilization(), (30.0 + 15.0 + 60.0) / 90.0);
}

}  // namespace
}  // namespace berth
