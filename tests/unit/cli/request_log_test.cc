#include "cli/request_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "cli/server_log.h"
#include "fakes/fake_clock.h"

namespace berth::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RequestLogTest : public testing::Test {
 protected:
  struct Line {
    LogLevel level;
    std::string message;
    Json fields;
  };

  RequestLogTest() {
    Policy policy;
    policy.classes.resize(2);
    policy.classes[0].name = "interactive";
    policy.classes[1].name = "batch";
    policy.tenants.resize(1);
    policy.tenants[0].name = "acme";
    log_->OnPolicy({.policy = &policy});
  }

  static RequestEnded GoodEnd() {
    RequestEnded end;
    end.request_id = "r1";
    end.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    end.service_class = 1;
    end.tenant = 0;
    end.reason = FinishReason::kStopToken;
    end.started = true;
    end.usage = {.prompt_tokens = 100,
                 .cached_tokens = 32,
                 .output_tokens = 3,
                 .reserved_blocks = 10,
                 .peak_blocks = 7,
                 .kv_block_seconds = 20.5,
                 .queue_time = milliseconds(1500),
                 .time_to_first_token = std::chrono::microseconds(1750'250)};
    return end;
  }
  static RequestEnded Refused(RefusalReason reason = RefusalReason::kQueueFull) {
    RequestEnded end;
    end.request_id = "refused";
    end.service_class = 0;
    end.tenant = 0;
    end.reason = reason;
    return end;
  }

  // What was written, once all of it is.
  std::vector<Line> Lines() {
    log_.reset();
    return lines_;
  }
  static std::int64_t LeftOut(const std::vector<Line>& lines) {
    std::int64_t sum = 0;
    for (const Line& line : lines) {
      if (line.message == RequestLog::kLeftOutMessage) sum += line.fields.at("left_out").get<std::int64_t>();
    }
    return sum;
  }
  static std::int64_t Ended(const std::vector<Line>& lines) {
    return std::ranges::count(lines, std::string(RequestLog::kEndedMessage), &Line::message);
  }

  test::FakeClock clock_;
  std::mutex mutex_;  // held: nothing is written
  std::vector<Line> lines_;
  std::unique_ptr<RequestLog> log_ =
      std::make_unique<RequestLog>(&clock_, [this](LogLevel level, const std::string& message, const Json& fields) {
        const std::lock_guard lock(mutex_);
        lines_.push_back({level, message, fields});
      });
};

TEST_F(RequestLogTest, ARequestThatEndedIsOneLineWithTheDocumentedKeys) {
  log_->OnEnd(GoodEnd());
  const std::vector<Line> lines = Lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].level, LogLevel::kInfo);
  EXPECT_EQ(JsonLogLine(milliseconds(1'795'990'500'007), lines[0].level, lines[0].message, lines[0].fields),
            R"({"ts":"2026-11-29T22:15:00.007Z","level":"info","msg":"request ended","request_id":"r1",)"
            R"("trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","tenant":"acme","class":"batch","outcome":"ok",)"
            R"("reason":"stop_token","prompt_tokens":100,"cached_tokens":32,"output_tokens":3,"reserved_blocks":10,)"
            R"("peak_blocks":7,"kv_block_seconds":20.5,"queue_ms":1500.0,"ttft_ms":1750.25})");
  EXPECT_EQ(TextLogWords(lines[0].message, {{"request_id", "r 1"}, {"output_tokens", 3}}),
            R"(request ended request_id="r 1" output_tokens=3)");
}

TEST_F(RequestLogTest, WhatIsNotKnownIsEmptyAndATokenThatNeverCameHasNoTime) {
  RequestEnded end = Refused(RefusalReason::kUnknownClass);
  end.service_class = kNoClass;
  end.tenant = 17;
  log_->OnEnd(end);
  const Json fields = Lines().at(0).fields;
  EXPECT_EQ(fields.at("class"), "");
  EXPECT_EQ(fields.at("tenant"), "");
  EXPECT_EQ(fields.at("outcome"), "rejected");
  EXPECT_EQ(fields.at("reason"), "unknown_class");
  EXPECT_TRUE(fields.at("ttft_ms").is_null());
}

TEST_F(RequestLogTest, WordsOfCallersCannotBreakALine) {
  const Json fields = {{"request_id", "a\"b\\c\n\x01\xFF"}};
  for (const std::string& line : {JsonLogLine({}, LogLevel::kInfo, "m", fields), TextLogWords("m", fields)}) {
    EXPECT_EQ(std::ranges::count_if(line, [](unsigned char c) { return c < 0x20; }), 0) << line;
  }
  const Json back = Json::parse(JsonLogLine({}, LogLevel::kError, "a\nb", fields));
  EXPECT_EQ(back.at("request_id"), "a\"b\\c\n\x01\xEF\xBF\xBD");
  EXPECT_EQ(back.at("msg"), "a\nb");
  EXPECT_EQ(back.at("level"), "error");
}

TEST_F(RequestLogTest, AnErrorIsAWarning) {
  RequestEnded end = GoodEnd();
  end.reason = RefusalReason::kBackendFault;
  log_->OnEnd(end);
  EXPECT_EQ(Lines().at(0).level, LogLevel::kWarning);
}

TEST_F(RequestLogTest, RefusalsBeyondTheRateAreCountedInsteadOfWritten) {
  constexpr int kFlood = 100;
  for (int second = 0; second < 2; ++second) {
    for (int i = 0; i < kFlood; ++i) log_->OnEnd(Refused());
    clock_.Advance(seconds(1));
  }
  log_->OnEnd(GoodEnd());
  const std::vector<Line> lines = Lines();
  EXPECT_EQ(Ended(lines), 2 * RequestLog::kRefusalsPerSecond + 1);
  EXPECT_EQ(LeftOut(lines), 2 * (kFlood - RequestLog::kRefusalsPerSecond));
}

TEST_F(RequestLogTest, ALogThatIsNotReadHoldsUpNobodyAndCountsWhatItLost) {
  constexpr auto kFlood = static_cast<std::int64_t>(RequestLog::kMaxWaiting) + 500;
  {
    const std::lock_guard nobody_reads(mutex_);
    for (std::int64_t i = 0; i < kFlood; ++i) log_->OnEnd(GoodEnd());
  }
  const std::vector<Line> lines = Lines();
  EXPECT_EQ(Ended(lines) + LeftOut(lines), kFlood);
  EXPECT_GE(LeftOut(lines), 499) << "one may have been on its way";
}

}  // namespace
}  // namespace berth::cli
