// Admission driven with literals: every answer about sequences is set by the test, one plan is one second.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "admission/admission.h"
#include "berth/pool_view.h"

namespace berth {

inline TimePoint At(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}
inline Duration Seconds(double seconds) { return At(seconds) - TimePoint(); }

struct FakeView final : PoolView {
  void FindCached(RequestKey request, std::vector<CachedBlock>* out) const override {
    const auto found = cached.find(request);
    if (found != cached.end()) *out = found->second;
  }
  std::int64_t RecomputeTokens(RequestKey request) const override {
    const auto found = recompute.find(request);
    return found == recompute.end() ? 0 : found->second;
  }
  std::int64_t UsedTokens(RequestKey request) const override {
    const auto found = used.find(request);
    return found == used.end() ? 0 : found->second;
  }
  std::int64_t StepsToFinish(RequestKey request, std::int64_t /*cached_blocks*/) const override {
    const auto found = steps.find(request);
    return found == steps.end() ? 10 : found->second;
  }
  std::map<RequestKey, std::vector<CachedBlock>> cached;
  std::map<RequestKey, std::int64_t> recompute;
  std::map<RequestKey, std::int64_t> used;
  std::map<RequestKey, std::int64_t> steps;
};

// A pool of one-token blocks: a request with one prompt token and O = b output tokens reserves b blocks.
class AdmissionTest : public testing::Test {
 protected:
  static ClassPolicy Class(const std::string& name, std::int64_t guarantee, std::int64_t borrowing, bool preemptible,
                           std::int32_t priority, std::int64_t slots) {
    ClassPolicy c;
    c.name = name;
    c.priority = priority;
    c.kv_guarantee_blocks = guarantee;
    c.kv_borrowing_limit_blocks = borrowing;
    c.preemptible = preemptible;
    c.slot_guarantee = slots;
    return c;
  }

  void Use(std::int32_t pool_blocks, std::int64_t slots, std::vector<ClassPolicy> classes) {
    policy.classes = std::move(classes);
    policy.max_running_sequences = slots;
    policy.tenants.resize(3);
    for (std::size_t t = 0; t < 3; ++t) policy.tenants[t].name = "t" + std::to_string(t);
    admission = std::make_unique<Admission>(KvPoolShape{pool_blocks, 1}, policy);
  }

  AdmissionRequest Request(ClassId c, std::int64_t blocks, TenantId tenant = 0) {
    AdmissionRequest request;
    request.key = next_key++;
    request.service_class = c;
    request.tenant = tenant;
    request.prompt_tokens = 1;
    request.max_output_tokens = blocks;
    request.arrival = At(now);
    request.overload = policy.classes[static_cast<std::size_t>(c)].overload;
    return request;
  }

  std::optional<Refusal> Submit(const AdmissionRequest& request) { return admission->Submit(request, At(now)); }

  // Submits a request that must be taken in, and returns its key.
  RequestKey Add(ClassId c, std::int64_t blocks, TenantId tenant = 0) {
    const AdmissionRequest request = Request(c, blocks, tenant);
    EXPECT_FALSE(Submit(request).has_value());
    return request.key;
  }

  const AdmissionPlan& Plan() {
    const AdmissionPlan& plan = admission->Plan(At(now), Seconds(1), view);
    now += 1.0;
    return plan;
  }

  std::vector<RequestKey> Started() {
    std::vector<RequestKey> keys;
    for (const auto& start : Plan().admit) keys.push_back(start.key);
    return keys;
  }

  void Finish(RequestKey key) { admission->Finish(key, At(now), 0); }

  using Keys = std::vector<RequestKey>;

  Policy policy;
  std::unique_ptr<Admission> admission;
  FakeView view;
  double now = 0.0;
  RequestKey next_key = 0;
};

}  // namespace berth
