// What a reload would change.
#pragma once

#include <string>
#include <vector>

#include "config/diagnostics.h"
#include "config/key_table.h"
#include "config/server_config.h"

namespace berth {

struct Change {
  std::string key;        // "classes.batch.kv_guarantee", or "classes.batch" for one that came or went
  std::string old_value;  // as it may stand in a file; empty = was not there
  std::string new_value;  // empty = is gone
  Effect effect = Effect::kLive;

  bool operator==(const Change&) const = default;
};

// In the order of the key table. The order of classes and of tenants, and how a value was spelled, is no change.
std::vector<Change> CompareConfigs(const ServerConfig& before, const ServerConfig& after);

// "classes.batch.kv_guarantee: 20% -> 30%"
std::string FormatChange(const Change& change);

// Tells each change that only a restart could make.
void RefuseRestartKeys(const std::vector<Change>& changes, Diagnostics* diagnostics);

}  // namespace berth
