#include "admission/waiting_line.h"

#include <algorithm>
#include <limits>

#include "admission/request_state.h"
#include "base/check.h"

namespace berth {

bool WaitingLine::Earlier::operator()(const RequestState* a, const RequestState* b) const {
  if (a->request.deadline != b->request.deadline) return a->request.deadline < b->request.deadline;
  return a->request.key < b->request.key;
}

void WaitingLine::GrowTenants(std::size_t num_tenants) {
  if (num_tenants > tenants_.size()) tenants_.resize(num_tenants);
}

void WaitingLine::Touch(TenantId tenant) {
  if (at(tenant).touched) return;
  at(tenant).touched = true;
  touched_.push_back(tenant);
}

void WaitingLine::Add(RequestState* request) {
  Tenant& tenant = at(request->request.tenant);
  (request->phase == RequestState::Phase::kParked ? tenant.parked : tenant.queued).insert(request);
  ++size_;
  if (!tenant.in_order) InsertInOrder(request->request.tenant);
}

void WaitingLine::Remove(RequestState* request) {
  Tenant& tenant = at(request->request.tenant);
  const auto removed = (request->phase == RequestState::Phase::kParked ? tenant.parked : tenant.queued).erase(request);
  BERTH_CHECK(removed == 1);
  --size_;
  Touch(request->request.tenant);
}

void WaitingLine::InsertInOrder(TenantId tenant) {
  at(tenant).in_order = true;
  const auto place = std::ranges::upper_bound(order_, at(tenant).frozen, {}, [&](TenantId t) { return at(t).frozen; });
  order_.insert(place, tenant);
}

void WaitingLine::CountLive(TenantId tenant, std::int32_t change) {
  at(tenant).live += change;
  Touch(tenant);
}

void WaitingLine::Charge(TenantId tenant, double weighted_block_seconds) {
  at(tenant).counter += weighted_block_seconds;
  Touch(tenant);
}

void WaitingLine::Freeze() {
  if (touched_.empty()) return;
  // Of those that were there and still are. No loop over all tenants: there may be thousands, nearly all of them away.
  double least = std::numeric_limits<double>::infinity();
  for (const TenantId t : touched_) {
    const Tenant& tenant = at(t);
    if (!tenant.was_live) continue;
    standing_.erase({tenant.frozen, t});
    if (tenant.live > 0) least = std::min(least, tenant.counter);
  }
  if (!standing_.empty()) least = std::min(least, standing_.begin()->first);
  for (const TenantId t : touched_) {
    Tenant& tenant = at(t);
    if (tenant.live > 0 && !tenant.was_live && least < std::numeric_limits<double>::infinity()) {
      tenant.counter = std::max(tenant.counter, least);
    }
    tenant.was_live = tenant.live > 0;
    tenant.touched = false;
    if (tenant.in_order) {
      order_.erase(std::ranges::find(order_, t));
      tenant.in_order = false;
    }
    tenant.frozen = tenant.counter;
    if (tenant.was_live) standing_.emplace(tenant.frozen, t);
  }
  for (const TenantId t : touched_) {
    if (!at(t).parked.empty() || !at(t).queued.empty()) InsertInOrder(t);
  }
  touched_.clear();
}

}  // namespace berth
