#include "cli/admin_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "cli/proto_json.h"

namespace berth::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::ServerStatus SomeStatus() {
  v1::ServerStatus status;
  status.set_state(v1::SERVER_STATE_BACKEND_FAULT);
  status.set_why("the last step failed");
  status.mutable_time()->set_seconds(1'790'000'000);
  status.mutable_uptime()->set_seconds(3 * 86'400 + 7'300);
  status.set_free_blocks(1000);
  status.set_held_blocks(24);
  v1::ClassStatus* c = status.add_classes();
  c->set_name("gold");
  c->set_stop(v1::CLASS_STOP_STATE_DRAIN);
  c->set_queued_requests(1234);
  c->mutable_oldest_wait()->set_nanos(300'000'000);
  c->set_kv_pressure(1.2625);
  v1::SloStatus* slo = c->add_slos();
  slo->set_slo("ttft");
  slo->set_met(199);
  slo->set_missed(1);
  slo->set_objective(0.99);
  return status;
}

TEST(AdminReportTest, AStatusBeginsWithItsStateAndHasARowAClass) {
  const std::string text = StatusText(SomeStatus());
  EXPECT_THAT(text, StartsWith("BACKEND_FAULT: the last step failed\n"));
  EXPECT_THAT(text, HasSubstr("1,024 blocks"));
  EXPECT_THAT(text, HasSubstr("up 3 d 2 h"));
  EXPECT_THAT(text, HasSubstr("built in"));
  const std::string row = text.substr(text.find("  gold"));
  for (const char* cell : {"drain", "1,234", "0.3 s", "126%", "ttft 99.5% of 99%"}) EXPECT_THAT(row, HasSubstr(cell));
}

TEST(AdminReportTest, OnANarrowScreenTheTableOfClassesComesInParts) {
  const std::string text = StatusText(SomeStatus(), 60);
  std::istringstream table(text.substr(text.find("  class ")));
  std::string line;
  int parts = 0;
  while (std::getline(table, line)) {
    EXPECT_LE(line.size(), 60u) << line;
    if (line.starts_with("  class ")) ++parts;
  }
  EXPECT_GT(parts, 1);
  for (const char* cell : {"drain", "1,234", "0.3 s", "126%", "ttft 99.5% of 99%"}) EXPECT_THAT(text, HasSubstr(cell));
}

TEST(AdminReportTest, JsonHasNumbersWordsSecondsAndNulls) {
  const Json json = ProtoJson(SomeStatus());
  EXPECT_EQ(json["state"], "backend_fault");
  EXPECT_EQ(json["time"], "2026-09-21T14:13:20Z");
  EXPECT_EQ(json["uptime"], 3 * 86'400 + 7'300);
  EXPECT_EQ(json["free_blocks"], 1000);
  EXPECT_EQ(json["classes"][0]["stop"], "drain");
  EXPECT_EQ(json["classes"][0]["oldest_wait"], 0.3);
  EXPECT_TRUE(json["classes"][0]["slos"][0]["threshold"].is_null());
}

TEST(AdminReportTest, TimesHaveTwoUnitsAtMost) {
  EXPECT_EQ(ShortTime(-1), "0.0 s");
  EXPECT_EQ(ShortTime(9.94), "9.9 s");
  EXPECT_EQ(ShortTime(59.9), "59 s");
  EXPECT_EQ(ShortTime(61), "1 min 1 s");
  EXPECT_EQ(ShortTime(3'600), "1 h 0 min");
  EXPECT_EQ(ShortTime(90'061), "1 d 1 h");
}

TEST(AdminReportTest, RequestsThatAreLeftOutAreCounted) {
  v1::ListRequestsResponse list;
  EXPECT_EQ(RequestsText(list), "no requests\n");
  v1::LiveRequest* r = list.add_requests();
  r->set_request_id("a\nb");
  r->set_state(v1::REQUEST_STATE_PREEMPTED);
  list.set_left_out(2000);
  const std::string text = RequestsText(list);
  EXPECT_THAT(text, HasSubstr("a b"));
  EXPECT_THAT(text, HasSubstr("preempted"));
  EXPECT_THAT(text, HasSubstr("and 2,000 more\n"));
}

// What ReportReload prints, and how it ends.
std::string Reported(const v1::ReloadPolicyResponse& response, bool strict, Outcome* outcome) {
  std::FILE* file = std::tmpfile();
  {
    Output out(file);
    *outcome = ReportReload(response, "mine.yaml", strict, /*json=*/false, out);
    out.Flush();
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(AdminReportTest, AReloadTellsChangesAndDebtsAndWarningsCountWhereTheyShould) {
  v1::ReloadPolicyResponse response;
  response.set_applied(true);
  response.set_dry_run(true);
  response.set_hash("abc");
  v1::PolicyChange* change = response.add_changes();
  change->set_key("classes.gold.priority");
  change->set_before("1");
  change->set_after("2");
  v1::ClassDebt* debt = response.add_debts();
  debt->set_service_class("gold");
  debt->set_debt_blocks(17);
  Outcome outcome;
  EXPECT_EQ(Reported(response, true, &outcome),
            "classes.gold.priority: 1 -> 2\n"
            "class gold: 17 blocks in debt now, until requests end\n"
            "1 key would change\n"
            "sha256 abc\n");
  EXPECT_TRUE(outcome.ok());
  response.add_findings("policy:1:1: warning: a: b");
  Reported(response, false, &outcome);
  EXPECT_TRUE(outcome.ok());
  Reported(response, true, &outcome);
  EXPECT_EQ(outcome.exit_code, kExitUsage);
}

TEST(AdminReportTest, ARefusedReloadIsAnErrorByTheFilesName) {
  v1::ReloadPolicyResponse response;
  response.set_error("policy: 1 error; the running policy stays in force");
  Outcome outcome;
  EXPECT_EQ(Reported(response, false, &outcome), "");
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_EQ(outcome.error, "mine.yaml: 1 error; the running policy stays in force");
}

}  // namespace
}  // namespace berth::cli
