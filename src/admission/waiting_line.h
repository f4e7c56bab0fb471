// One class's waiting requests, in the order in which they may start.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "berth/clock.h"
#include "berth/units.h"

namespace berth {

struct RequestState;

// Order: parked ones before queued ones; among these the tenant with the lowest counter first, then the earliest
// deadline, then arrival. A tenant's counter is its weighted block-seconds of service in this class; the order between
// tenants is frozen from Freeze() to the next one, whatever is charged meanwhile.
class WaitingLine {
 public:
  void GrowTenants(std::size_t num_tenants);

  void Add(RequestState* request);     // by its state: parked or queued
  void Remove(RequestState* request);  // before its state changes

  // A request of this tenant came to life or ended, waiting or running.
  void CountLive(TenantId tenant, std::int32_t change);
  // Starts a plan: tenants that came to life since the last one are lifted to the least counter of those that were
  // there, so that idling earns nothing; then the order freezes.
  void Freeze();
  void Charge(TenantId tenant, double weighted_block_seconds);
  double counter(TenantId tenant) const { return tenants_[static_cast<std::size_t>(tenant)].counter; }

  bool HasParked(TenantId tenant) const { return !tenants_[static_cast<std::size_t>(tenant)].parked.empty(); }
  // Calls `visit(tenant, requests)` for each tenant that has queued ones.
  template <typename Visit>
  void VisitQueued(Visit&& visit) const {
    for (const TenantId t : order_) {
      const Sorted& queued = tenants_[static_cast<std::size_t>(t)].queued;
      if (!queued.empty()) visit(t, static_cast<std::int64_t>(queued.size()));
    }
  }
  std::int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  enum class Next : std::uint8_t { kGoOn, kStop };
  // Visits in order until told to stop. The line must not change meanwhile.
  template <typename Visit>
  void Walk(Visit&& visit);

 private:
  struct Earlier {
    bool operator()(const RequestState* a, const RequestState* b) const;
  };
  using Sorted = std::set<RequestState*, Earlier>;
  struct Tenant {
    double counter = 0.0;
    double frozen = 0.0;
    std::int32_t live = 0;
    bool was_live = false;  // at the last Freeze: then it is in standing_ with the counter it had
    bool in_order = false;
    bool touched = false;
    Sorted parked;
    Sorted queued;
  };

  Tenant& at(TenantId tenant) { return tenants_[static_cast<std::size_t>(tenant)]; }
  void Touch(TenantId tenant);
  void InsertInOrder(TenantId tenant);
  template <typename Visit>
  Next WalkPart(Sorted Tenant::*part, Visit&& visit);

  std::vector<Tenant> tenants_;
  std::vector<TenantId> order_;                     // tenants with waiters, by frozen counter; some may have none left
  std::set<std::pair<double, TenantId>> standing_;  // who was live at the last Freeze, by the counter it had then
  std::vector<TenantId> touched_;                   // came to life, ended or were charged since the last Freeze
  std::int64_t size_ = 0;
  std::vector<std::pair<Sorted::const_iterator, Sorted::const_iterator>> heads_;  // scratch of a walk
};

template <typename Visit>
void WaitingLine::Walk(Visit&& visit) {
  if (WalkPart(&Tenant::parked, visit) == Next::kStop) return;
  WalkPart(&Tenant::queued, visit);
}

template <typename Visit>
WaitingLine::Next WaitingLine::WalkPart(Sorted Tenant::*part, Visit&& visit) {
  for (std::size_t begin = 0; begin < order_.size();) {
    // Tenants with equal counters take turns by deadline.
    std::size_t end = begin;
    heads_.clear();
    for (; end < order_.size() && at(order_[end]).frozen == at(order_[begin]).frozen; ++end) {
      const Sorted& sorted = at(order_[end]).*part;
      if (!sorted.empty()) heads_.emplace_back(sorted.begin(), sorted.end());
    }
    begin = end;
    while (!heads_.empty()) {
      std::size_t least = 0;
      for (std::size_t i = 1; i < heads_.size(); ++i) {
        if (Earlier()(*heads_[i].first, *heads_[least].first)) least = i;
      }
      if (visit(**heads_[least].first) == Next::kStop) return Next::kStop;
      if (++heads_[least].first == heads_[least].second)
        heads_.erase(heads_.begin() + static_cast<std::ptrdiff_t>(least));
    }
  }
  return Next::kGoOn;
}

}  // namespace berth
