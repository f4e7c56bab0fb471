// The store's numbers in Prometheus' text format.
#pragma once

#include <string>
#include <vector>

#include "telemetry/metric_store.h"
#include "telemetry/name_slots.h"

namespace berth {

struct ExpositionNames {
  std::string model_name;
  const NameSlots* classes = nullptr;
  const NameSlots* tenants = nullptr;
  std::vector<bool> hidden_classes;  // by slot: gone, and nothing of theirs is left
  std::vector<bool> quiet_tenants;   // by slot: series that never moved are left out
};

// Version 0.0.4, UTF-8. Every series is there from the start, but for those of quiet tenants, of `other` as a class
// (only refusals can have it), of combinations that mean a bug, and of gauges that are NaN.
std::string TextPage(const MetricStore& store, const ExpositionNames& names);

inline constexpr char kTextPageType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace berth
