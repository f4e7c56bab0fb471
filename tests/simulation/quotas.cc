#include "quotas.h"
#include "base/index.h"

#include <algorithm>

namespace berth::simulation {
namespace {

constexpr double kRounding = 1e-6;

}  // namespace

Quotas::Quotas(test::CoreLoop* loop, const Policy& policy) : loop_(loop), policy_(policy) {
  for (const TenantPolicy& t : policy.tenants) buckets_.push_back({true, t.burst_tokens, {}});
}

void Quotas::Bad(TenantId tenant, const std::string& what) {
  if (!violation_.has_value()) violation_ = "quota: tenant " + std::to_string(tenant) + " " + what;
}

void Quotas::SetPolicy(const Policy& policy) {
  buckets_.resize(policy.tenants.size(), Bucket{false, 0.0, {}});
  for (std::size_t t = 0; t < policy_.tenants.size(); ++t) {
    const TenantPolicy& before = policy_.tenants[t];
    const TenantPolicy& after = policy.tenants[t];
    if (before.tokens_per_minute != after.tokens_per_minute || before.burst_tokens != after.burst_tokens) {
      buckets_[t].known = false;
    }
  }
  policy_ = policy;
}

double Quotas::Asked(const test::LoopRequest& request) {
  return static_cast<double>(std::ssize(request.prompt) + request.n * request.max_output_tokens);
}

std::int64_t Quotas::Live(TenantId tenant) const {
  const auto views = loop_->Views();
  return std::ranges::count_if(views, [&](const auto& view) {
    return view.request->tenant == tenant && loop_->admission().Find(view.key) != nullptr;
  });
}

void Quotas::AfterSubmit(const test::LoopRequest& request, RequestKey key, TimePoint now) {
  const TenantPolicy& tenant = policy_.tenants[Index(request.tenant)];
  const auto ended = loop_->ended().find(key);
  const bool refused = ended != loop_->ended().end();
  const std::int64_t live = Live(request.tenant);
  if (!refused && live > tenant.max_concurrent_requests) Bad(request.tenant, "has too many requests");

  // What was shed for this one, or ended by a policy change, has its tokens back and is told in the next plan.
  std::erase_if(charged_, [&](const auto& charged) {
    if (loop_->admission().Find(charged.first) != nullptr) return false;
    Refund(*charged.second, 0.0);
    return true;
  });
  Bucket& bucket = buckets_[Index(request.tenant)];
  if (!tenant.tokens_per_minute.has_value() || !bucket.known) return;
  if (now > bucket.filled_at) {
    bucket.level = std::min(tenant.burst_tokens,
                            bucket.level + ToSeconds(now - bucket.filled_at) * *tenant.tokens_per_minute / 60.0);
    bucket.filled_at = now;
  }
  const bool fits = Asked(request) <= bucket.level + kRounding;
  if (refused) {
    const bool by_rate =
        ended->second.reason == RefusalReason::kTenantQuotaExceeded && live < tenant.max_concurrent_requests;
    if (by_rate && Asked(request) < bucket.level - kRounding) Bad(request.tenant, "was refused tokens that it had");
    return;
  }
  if (!fits) Bad(request.tenant, "got more tokens than its rate brought");
  bucket.level -= Asked(request);
  charged_[key] = &request;
}

void Quotas::Refund(const test::LoopRequest& request, double used) {
  double& level = buckets_[Index(request.tenant)].level;
  level = std::min(policy_.tenants[Index(request.tenant)].burst_tokens, level + Asked(request) - used);
}

void Quotas::AfterEnd(const test::LoopRequest& request, RequestKey key, const test::Outcome& outcome) {
  if (charged_.erase(key) == 0) return;
  double used = 0.0;
  if (outcome.first_start.has_value()) used += static_cast<double>(request.prompt.size());
  for (const auto& output : outcome.output) used += static_cast<double>(output.size());
  Refund(request, used);
}

void Quotas::AfterPlan() {
  std::vector<std::int64_t> blocks(policy_.tenants.size());
  for (const test::CoreLoop::View& view : loop_->Views()) {
    if (view.running) blocks[Index(view.request->tenant)] += loop_->scheduler().Blocks(view.key)->reserved();
  }
  blocks_before_.resize(blocks.size());
  for (std::size_t t = 0; t < blocks.size(); ++t) {
    if (blocks[t] > policy_.tenants[t].max_kv_blocks && blocks[t] > blocks_before_[t]) {
      Bad(static_cast<TenantId>(t),
          "reserves " + std::to_string(blocks[t]) + " blocks of " + std::to_string(policy_.tenants[t].max_kv_blocks));
    }
  }
  blocks_before_ = std::move(blocks);
}

}  // namespace berth::simulation
