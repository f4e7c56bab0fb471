// How much is going on, as those who balance load over servers read it (ORCA).
#pragma once

#include "berth/metrics.h"
#include "engine/engine.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace berth {

// The trailer that carries a serialised report.
inline constexpr char kLoadReportTrailer[] = "endpoint-load-metrics-bin";

xds::data::orca::v3::OrcaLoadReport LoadReportOf(const LoadSnapshot& load);

// TEMPORARY until Engine::load() is a LoadSnapshot.
inline LoadSnapshot LoadOf(const Engine& engine) {
  const EngineLoad load = engine.load();
  LoadSnapshot snapshot;
  snapshot.held_blocks = load.held_blocks;
  snapshot.unspent_blocks = load.reserved_blocks - load.held_blocks;
  return snapshot;
}

}  // namespace berth
