#include "frontend/call_headers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

CallHeaders Read(const std::vector<MetadataEntry>& metadata) { return ReadCallHeaders(metadata); }

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";

TEST(CallHeaders, NothingIsThereByDefault) {
  const CallHeaders headers = Read({{"user-agent", "grpc"}, {"x-unknown", "y"}});
  EXPECT_TRUE(headers.credentials.authorization.empty());
  EXPECT_TRUE(headers.credentials.x_api_key.empty());
  for (const TenantClaim& claim : headers.tenants) EXPECT_TRUE(claim.name.empty());
  EXPECT_EQ(headers.service_class, "");
  EXPECT_EQ(headers.objective, "");
  EXPECT_EQ(headers.trace_id, "");
  EXPECT_FALSE(headers.is_retry);
  EXPECT_FALSE(headers.fault.has_value());
}

TEST(CallHeaders, EachIsFoundUnderItsName) {
  const std::string traceparent = std::string("00-") + kTraceId + "-00f067aa0ba902b7-01";
  const CallHeaders headers = Read({{"authorization", "Bearer a"},
                                    {"authorization", "Basic b"},
                                    {"x-api-key", "c"},
                                    {"x-gateway-inference-fairness-id", "old"},
                                    {"x-llm-d-inference-fairness-id", "new"},
                                    {"x-berth-tenant", "own"},
                                    {"x-berth-class", "batch"},
                                    {"x-gateway-inference-objective", "older"},
                                    {"x-llm-d-inference-objective", "newer"},
                                    {"traceparent", traceparent},
                                    {"grpc-previous-rpc-attempts", "2"},
                                    {"x-slo-ttft-ms", "250"},
                                    {"x-llm-d-slo-tpot-ms", "12.5"}});
  EXPECT_THAT(headers.credentials.authorization, ElementsAre("Bearer a", "Basic b"));
  EXPECT_THAT(headers.credentials.x_api_key, ElementsAre("c"));
  EXPECT_STREQ(headers.tenants[0].source, "x-berth-tenant");
  EXPECT_EQ(headers.tenants[0].name, "own");
  EXPECT_EQ(headers.tenants[1].name, "new");
  EXPECT_EQ(headers.tenants[2].name, "old");
  EXPECT_EQ(headers.service_class, "batch");
  EXPECT_EQ(headers.objective, "newer");
  EXPECT_EQ(headers.trace_id, kTraceId);
  EXPECT_TRUE(headers.is_retry);
  EXPECT_FALSE(headers.fault.has_value());
}

TEST(CallHeaders, TheOlderObjectiveCountsWhereThereIsNoNewerOne) {
  EXPECT_EQ(Read({{"x-gateway-inference-objective", "older"}}).objective, "older");
  EXPECT_EQ(Read({{"x-gateway-inference-objective", "older"}, {"x-llm-d-inference-objective", ""}}).objective, "older");
}

TEST(CallHeaders, AFirstAttemptIsNoRetry) {
  EXPECT_FALSE(Read({{"grpc-previous-rpc-attempts", "0"}}).is_retry);
  EXPECT_TRUE(Read({{"grpc-previous-rpc-attempts", "10"}}).is_retry);
}

TEST(CallHeaders, AMalformedOneIsNamed) {
  const std::vector<std::pair<const char*, std::vector<MetadataEntry>>> cases = {
      {"x-berth-class", {{"x-berth-class", "a"}, {"x-berth-class", "b"}}},
      {"x-berth-tenant", {{"x-berth-tenant", "a"}, {"x-berth-tenant", "b"}}},
      {"x-llm-d-inference-fairness-id",
       {{"x-llm-d-inference-fairness-id", "a"}, {"x-llm-d-inference-fairness-id", "b"}}},
      {"x-llm-d-inference-objective", {{"x-llm-d-inference-objective", "a"}, {"x-llm-d-inference-objective", "b"}}},
      {"x-slo-ttft-ms", {{"x-slo-ttft-ms", "soon"}}},
      {"x-slo-ttft-ms", {{"x-slo-ttft-ms", "0"}}},
      {"x-slo-ttft-ms", {{"x-slo-ttft-ms", "0.0"}}},
      {"x-slo-tpot-ms", {{"x-slo-tpot-ms", "-5"}}},
      {"x-llm-d-slo-ttft-ms", {{"x-llm-d-slo-ttft-ms", "1e3"}}},
      {"x-llm-d-slo-tpot-ms", {{"x-llm-d-slo-tpot-ms", "86400000"}}},
      {"x-llm-d-slo-tpot-ms", {{"x-llm-d-slo-tpot-ms", "99999999999999999999"}}},
      {"x-llm-d-slo-tpot-ms", {{"x-llm-d-slo-tpot-ms", "1."}}},
      {"x-llm-d-slo-tpot-ms", {{"x-llm-d-slo-tpot-ms", ".5"}}},
  };
  for (const auto& [header, metadata] : cases) {
    const CallHeaders headers = Read(metadata);
    ASSERT_TRUE(headers.fault.has_value()) << header << " " << metadata.back().second;
    EXPECT_EQ(headers.fault->reason, RefusalReason::kInvalidRequest);
    EXPECT_EQ(headers.fault->field, header);
    EXPECT_THAT(headers.fault->message, StartsWith(header));
  }
  EXPECT_FALSE(Read({{"x-berth-class", "a"}, {"x-berth-class", "a"}}).fault.has_value());
}

TEST(CallHeaders, ATraceIdIsTakenFromAnyVersionAndAMalformedOneIsIgnored) {
  const std::string id = kTraceId;
  const std::string parent = "00f067aa0ba902b7";
  EXPECT_EQ(TraceIdOf("00-" + id + "-" + parent + "-00"), id);
  EXPECT_EQ(TraceIdOf("cc-" + id + "-" + parent + "-01"), id);
  EXPECT_EQ(TraceIdOf("cc-" + id + "-" + parent + "-01-what-comes-later"), id);
  const std::string upper = "4BF92F3577B34DA6A3CE929D0E0E4736";
  for (const std::string& malformed : {
           std::string(),
           std::string("00"),
           std::string(55, '-'),
           "00-" + id + "-" + parent,
           "00-" + id + "-" + parent + "-0",
           "00-" + id + "-" + parent + "-01-more",
           "00-" + id + "-" + parent + "-01 ",
           "cc-" + id + "-" + parent + "-01.more",
           "ff-" + id + "-" + parent + "-01",
           "0-" + id + "-" + parent + "-001",
           "00-" + upper + "-" + parent + "-01",
           "00-" + std::string(32, '0') + "-" + parent + "-01",
           "00-" + id + "-" + std::string(16, '0') + "-01",
           "00_" + id + "-" + parent + "-01",
           "00-" + id + "_" + parent + "-01",
           "00-" + id + "-" + parent + "_01",
           "00-" + id + "-" + parent + "-0x",
       }) {
    EXPECT_EQ(TraceIdOf(malformed), "") << malformed;
  }
}

}  // namespace
}  // namespace berth
