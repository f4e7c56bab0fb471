// What a load showed, for people and for machines.
#pragma once

#include <deque>
#include <string>

#include <nlohmann/json.hpp>

#include "load_run.h"
#include "tally.h"
#include "workload.h"

namespace berth::bench {

// Everything, under fixed names; times in milliseconds.
nlohmann::ordered_json ReportJson(const LoadOptions& options, const WorkloadOptions& workload,
                                  const std::deque<Tally>& tallies, const LoadResult& result);

// The same as aligned tables.
std::string ReportText(const nlohmann::ordered_json& report);

}  // namespace berth::bench
