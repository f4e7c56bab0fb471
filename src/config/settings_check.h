// What can be said about settings before the pool is known: keys that contradict, name what is not there, or have no
// effect.
#pragma once

#include <string>
#include <string_view>

#include "config/diagnostics.h"
#include "config/server_config.h"

namespace berth {

void CheckSettings(const ServerConfig& config, Diagnostics* diagnostics);

// "no class is named ...", with a hint.
std::string UnknownClass(const ServerConfig& config, std::string_view name);

// The tenant may use the class.
bool MayUse(const TenantSettings& tenant, std::string_view service_class);

}  // namespace berth
