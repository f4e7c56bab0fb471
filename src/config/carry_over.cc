#include "config/carry_over.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth {
namespace {

// Where each of `next` goes: the place of its name in `running`, or behind all of them.
template <typename Item>
std::vector<std::int32_t> Places(const std::vector<Item>& running, const std::vector<Item>& next) {
  std::unordered_map<std::string_view, std::int32_t> by_name;
  for (std::size_t i = 0; i < running.size(); ++i) by_name.emplace(running[i].name, static_cast<std::int32_t>(i));
  std::vector<std::int32_t> places;
  auto behind = static_cast<std::int32_t>(running.size());
  for (const Item& item : next) {
    const auto found = by_name.find(item.name);
    places.push_back(found != by_name.end() ? found->second : behind++);
  }
  return places;
}

// `next` at its places; what is left free is `gone`.
template <typename Item>
std::vector<Item> Placed(const std::vector<Item>& gone, std::vector<Item> next,
                         const std::vector<std::int32_t>& places) {
  std::vector<Item> placed = gone;
  for (std::size_t i = 0; i < next.size(); ++i) {
    const auto place = static_cast<std::size_t>(places[i]);
    if (place >= placed.size()) placed.resize(place + 1);
    placed[place] = std::move(next[i]);
  }
  return placed;
}

}  // namespace

void AddSpareTenants(std::int32_t count, Policy* policy) {
  if (count == 0) return;
  TenantPolicy unlisted = policy->tenants[static_cast<std::size_t>(policy->default_tenant)];
  unlisted.name.clear();
  policy->tenants.insert(policy->tenants.end(), static_cast<std::size_t>(count), unlisted);
  unlisted.name = kOtherTenant;
  policy->tenants.push_back(std::move(unlisted));
}

Policy CarryOver(const Policy& running, Policy next) {
  const std::vector<ClassId> class_places = Places(running.classes, next.classes);
  const std::vector<TenantId> tenant_places = Places(running.tenants, next.tenants);
  for (TenantPolicy& tenant : next.tenants) {
    if (!tenant.classes) continue;
    for (ClassId& c : *tenant.classes) c = class_places[static_cast<std::size_t>(c)];
  }

  std::vector<ClassPolicy> gone_classes = running.classes;
  for (ClassPolicy& c : gone_classes) {
    c.removed = true;
    c.kv_guarantee_blocks = 0;
    c.kv_borrowing_limit_blocks = 0;
    c.slot_guarantee = 0;
    c.prefill_min_share = 0.0;
  }
  const TenantPolicy& unlisted = next.tenants[static_cast<std::size_t>(next.default_tenant)];
  std::vector<TenantPolicy> gone_tenants(running.tenants.size(), unlisted);
  for (std::size_t t = 0; t < gone_tenants.size(); ++t) gone_tenants[t].name = running.tenants[t].name;

  next.default_class = class_places[static_cast<std::size_t>(next.default_class)];
  next.default_tenant = tenant_places[static_cast<std::size_t>(next.default_tenant)];
  next.classes = Placed(gone_classes, std::move(next.classes), class_places);
  next.tenants = Placed(gone_tenants, std::move(next.tenants), tenant_places);
  return next;
}

}  // namespace berth
