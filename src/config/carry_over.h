// A new policy in the place of a running one.
#pragma once

#include <cstdint>

#include "berth/policy.h"

namespace berth {

// What all tenants that are not listed and have no place of their own are together.
inline constexpr char kOtherTenant[] = "other";

// Adds places for so many tenants that are not listed, without a name, and behind them kOtherTenant; all have the
// limits of the default tenant. None for `count` 0. Once, before a policy runs: CarryOver keeps them.
void AddSpareTenants(std::int32_t count, Policy* policy);

// `next` with the indexes of `running`: a class or tenant keeps its place by its name, new ones come behind. A class
// that is gone stays as a removed one with nothing of its own; a tenant that is gone stays under the limits of the
// default tenant, as any that is not listed, and so do spare places and who has got one.
Policy CarryOver(const Policy& running, Policy next);

}  // namespace berth
