// The state of a running server, as berth.v1.Admin tells it.
#pragma once

#include "berth/clock.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "berth/v1/admin.pb.h"
#include "engine/live_list.h"
#include "frontend/health.h"

namespace berth {

// Adds what is seen from the load, `now` being the clock's: everything but names, versions and promises.
void EncodeLoad(const LoadSnapshot& load, const Policy& policy, TimePoint now, v1::ServerStatus* out);
void EncodeHealth(const Health& health, v1::ServerStatus* out);
v1::ClassStopState EncodeStop(ClassStop stop);

// Names are `policy`'s for the class, and `tenant`.
void EncodeLiveRow(const LiveRow& row, const Policy& policy, const std::string& tenant, v1::LiveRequest* out);

}  // namespace berth
