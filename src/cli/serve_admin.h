// What berth.v1.Admin of a running server tells and does.
#pragma once

#include <functional>
#include <vector>

#include "berth/metrics.h"
#include "berth/policy.h"
#include "cli/live_policy.h"
#include "cli/serve_policy.h"
#include "engine/engine.h"
#include "frontend/admin_hooks.h"
#include "frontend/identity.h"
#include "telemetry/telemetry.h"

namespace berth::cli {

// All outlive the hooks.
struct AdminWiring {
  Engine* engine = nullptr;
  Callers* callers = nullptr;
  LivePolicy* policy = nullptr;
  ServedPolicy* file = nullptr;  // null where the server was started without a policy file
  const Telemetry* telemetry = nullptr;
  std::function<void()> drain;
};

AdminHooks MakeAdminHooks(const AdminWiring& wiring);

// What each class of `load` uses beyond what `policy` lets it have, where that is anything.
std::vector<v1::ClassDebt> DebtsUnder(const Policy& policy, const LoadSnapshot& load);

}  // namespace berth::cli
