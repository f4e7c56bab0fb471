#include "telemetry/load_gauges.h"

#include <algorithm>

namespace berth {
namespace {

constexpr MetricId kByClass[] = {
    MetricId::kRequestsRunning,     MetricId::kRequestsPreempted, MetricId::kQueueOldestAge,
    MetricId::kClassGuaranteeUnmet, MetricId::kClassPressure,     MetricId::kClassKvUsed,
    MetricId::kClassKvBorrowed,     MetricId::kClassKvLent,       MetricId::kClassKvDebt,
    MetricId::kRequestsQueued,
};

void Clear(MetricStore* store) {
  for (const MetricId id : kByClass) {
    const MetricSpec& spec = SpecOf(id);
    const int tenants = spec.by_tenant() ? store->num_tenants() : 1;
    const auto rows = static_cast<int>(store->rows(spec.rows).rows.size());
    for (int c = 0; c < store->num_classes(); ++c) {
      for (int t = 0; t < tenants; ++t) {
        for (int row = 0; row < rows; ++row) store->Set(id, {c, t, row}, 0.0);
      }
    }
  }
}

void SetServerGauges(const LoadSnapshot& load, MetricStore* store) {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  for (const ClassSnapshot& c : load.classes) {
    running += c.running_requests;
    waiting += c.queued_requests + c.parked_requests;
  }
  const double committed = CommittedRatio(load);
  store->Set(MetricId::kKvBlocks, {.row = kFreeRow}, static_cast<double>(load.free_blocks));
  store->Set(MetricId::kKvBlocks, {.row = kCachedRow}, static_cast<double>(load.cached_blocks));
  store->Set(MetricId::kKvBlocks, {.row = kHeldRow}, static_cast<double>(load.held_blocks));
  store->Set(MetricId::kKvReservedUnspentBlocks, {}, static_cast<double>(load.unspent_blocks));
  store->Set(MetricId::kKvUsedRatio, {}, PressureRatio(load.held_blocks, load.pool_blocks()));
  store->Set(MetricId::kKvCommittedRatio, {}, committed);
  store->Set(MetricId::kPressure, {}, PressureOf(load).highest());
  store->Set(MetricId::kRouterWaiting, {}, static_cast<double>(waiting));
  store->Set(MetricId::kRouterRunning, {}, static_cast<double>(running));
  store->Set(MetricId::kRouterKvUsage, {}, committed);
}

std::int64_t Guarantee(const Policy& policy, std::size_t c) {
  return c < policy.classes.size() && !policy.classes[c].removed ? policy.classes[c].kv_guarantee_blocks : 0;
}

std::int64_t Borrowed(const LoadSnapshot& load, const Policy& policy, std::size_t c) {
  return std::max<std::int64_t>(0, load.classes[c].used_blocks - Guarantee(policy, c));
}

}  // namespace

bool IsIdle(const ClassSnapshot& c) {
  return c.running_requests + c.queued_requests + c.parked_requests + c.used_blocks == 0;
}

std::vector<std::int64_t> LentBlocks(const LoadSnapshot& load, const Policy& policy) {
  std::int64_t common = load.pool_blocks();
  for (std::size_t c = 0; c < policy.classes.size(); ++c) common -= Guarantee(policy, c);
  std::int64_t beyond_common = -std::max<std::int64_t>(0, common);
  std::int64_t all_lendable = 0;
  std::vector<std::int64_t> lendable(load.classes.size());
  for (std::size_t c = 0; c < load.classes.size(); ++c) {
    beyond_common += Borrowed(load, policy, c);
    const std::int64_t idle = std::max<std::int64_t>(0, Guarantee(policy, c) - load.classes[c].used_blocks);
    lendable[c] = c < policy.classes.size() ? std::min(idle, policy.classes[c].kv_lending_limit_blocks) : 0;
    all_lendable += lendable[c];
  }
  beyond_common = std::clamp<std::int64_t>(beyond_common, 0, all_lendable);
  // Each gets the difference of two rounded running sums, so that the parts sum to the whole.
  std::vector<std::int64_t> lent(load.classes.size());
  std::int64_t lendable_so_far = 0;
  std::int64_t lent_so_far = 0;
  for (std::size_t c = 0; c < lent.size() && all_lendable > 0; ++c) {
    lendable_so_far += lendable[c];
    const std::int64_t until_here = beyond_common * lendable_so_far / all_lendable;
    lent[c] = until_here - lent_so_far;
    lent_so_far = until_here;
  }
  return lent;
}

void SetLoadGauges(const LoadSnapshot& load, const Policy& policy, const NameSlots& classes, const NameSlots& tenants,
                   TimePoint now, MetricStore* store) {
  Clear(store);
  SetServerGauges(load, store);
  const std::vector<std::int64_t> lent = LentBlocks(load, policy);
  for (std::size_t i = 0; i < load.classes.size(); ++i) {
    const ClassSnapshot& c = load.classes[i];
    const int slot = classes.Of(static_cast<std::int64_t>(i));
    const Pressure pressure = PressureOf(c, load);
    const auto add = [&](MetricId id, double value, int row = 0) {
      store->Add(id, {.class_slot = slot, .row = row}, value);
    };
    add(MetricId::kRequestsRunning, static_cast<double>(c.running_requests));
    add(MetricId::kRequestsPreempted, static_cast<double>(c.parked_requests));
    if (c.waiting_since.has_value()) {
      add(MetricId::kQueueOldestAge, std::max(0.0, ToSeconds(now - *c.waiting_since)));
    }
    add(MetricId::kClassGuaranteeUnmet, c.guarantee_unmet ? 1.0 : 0.0);
    add(MetricId::kClassPressure, pressure.kv, kKvRow);
    add(MetricId::kClassPressure, pressure.slots, kSlotsRow);
    add(MetricId::kClassPressure, pressure.compute, kComputeRow);
    add(MetricId::kClassKvUsed, static_cast<double>(c.used_blocks));
    add(MetricId::kClassKvBorrowed, static_cast<double>(Borrowed(load, policy, i)));
    add(MetricId::kClassKvLent, static_cast<double>(lent[i]));
    add(MetricId::kClassKvDebt, static_cast<double>(c.debt_blocks));
  }
  for (const TenantQueue& queue : load.queued) {
    store->Add(MetricId::kRequestsQueued, {classes.Of(queue.service_class), tenants.Of(queue.tenant), 0},
               static_cast<double>(queue.queued_requests));
  }
}

}  // namespace berth
