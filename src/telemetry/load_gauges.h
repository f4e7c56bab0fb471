// A load snapshot as gauges.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/clock.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "telemetry/metric_store.h"
#include "telemetry/name_slots.h"

namespace berth {

// Blocks of each class's idle guarantee that borrowers use: what all classes use beyond their guarantees and beyond the
// common space, spread over the guarantees in proportion to what each could lend.
std::vector<std::int64_t> LentBlocks(const LoadSnapshot& load, const Policy& policy);

// Whether anything of a class is left.
bool IsIdle(const ClassSnapshot& c);

// All gauges that follow the load, as of `now`. One caller at a time.
void SetLoadGauges(const LoadSnapshot& load, const Policy& policy, const NameSlots& classes, const NameSlots& tenants,
                   TimePoint now, MetricStore* store);

}  // namespace berth
