// A telemetry that has seen a bit of everything.
#pragma once

#include <string>
#include <vector>

#include "berth/kv.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "telemetry/telemetry.h"

namespace berth::test {

inline constexpr ClassId kInteractive = 0;
inline constexpr ClassId kBatch = 1;
inline constexpr TenantId kDefaultTenant = 0;
inline constexpr TenantId kAcme = 1;

// 100 blocks; interactive is guaranteed 60, batch 20 and may borrow 80; tenants default and acme.
Policy ScenePolicy();
// interactive promises 1 s to the first token and 200 ms between tokens, to 99 %.
std::vector<ClassSlo> SceneSlos();
TelemetryOptions SceneOptions();

// At least one event of every kind, so that every metric that can move has moved.
void PlayEverything(MetricSink* sink, TimePoint now);

}  // namespace berth::test
