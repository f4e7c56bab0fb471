#include "frontend/load_report.h"

namespace berth {

xds::data::orca::v3::OrcaLoadReport LoadReportOf(const LoadSnapshot& load) {
  std::int64_t waiting = 0;
  for (const ClassSnapshot& c : load.classes) waiting += c.queued_requests + c.parked_requests;
  xds::data::orca::v3::OrcaLoadReport report;
  auto& metrics = *report.mutable_named_metrics();
  metrics["kv_cache_usage_perc"] = CommittedRatio(load);
  metrics["num_requests_waiting"] = static_cast<double>(waiting);
  report.set_application_utilization(PressureOf(load).highest());
  return report;
}

}  // namespace berth
