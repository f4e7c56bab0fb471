// What a tenant may have, kept as a second book: its live requests, the blocks that its running requests reserve, and
// its bucket of tokens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/policy.h"
#include "fakes/core_loop.h"

namespace berth::simulation {

class Quotas {
 public:
  Quotas(test::CoreLoop* loop, const Policy& policy);

  void SetPolicy(const Policy& policy);
  // A request came with its ticket, and was taken in or refused. It must stay where it is until it has ended.
  void AfterSubmit(const test::LoopRequest& request, RequestKey key, TimePoint now);
  // A request that was taken in ended.
  void AfterEnd(const test::LoopRequest& request, RequestKey key, const test::Outcome& outcome);
  void AfterPlan();

  const std::optional<std::string>& violation() const { return violation_; }

 private:
  struct Bucket {
    bool known = true;  // until a policy change alters the tenant's rate
    double level = 0.0;
    TimePoint filled_at{};
  };

  void Bad(TenantId tenant, const std::string& what);
  void Refund(const test::LoopRequest& request, double used);
  static double Asked(const test::LoopRequest& request);
  std::int64_t Live(TenantId tenant) const;

  test::CoreLoop* loop_;
  Policy policy_;
  std::vector<Bucket> buckets_;
  std::vector<std::int64_t> blocks_before_;
  std::map<RequestKey, const test::LoopRequest*> charged_;
  std::optional<std::string> violation_;
};

}  // namespace berth::simulation
