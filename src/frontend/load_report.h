// How much is going on, as those who balance load over servers read it (ORCA).
#pragma once

#include "berth/metrics.h"
#include "engine/engine.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace berth {

// The trailer that carries a serialised report.
inline constexpr char kLoadReportTrailer[] = "endpoint-load-metrics-bin";

xds::data::orca::v3::OrcaLoadReport LoadReportOf(const LoadSnapshot& load);

}  // namespace berth
