// A request as the engine's thread sees it, from Submit until it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "berth/units.h"
#include "engine/request_facts.h"
#include "engine/request_output.h"
#include "engine/usage_meter.h"
#include "scheduler/scheduler.h"

namespace berth {

// Made by the caller's thread, so that the engine's has little left to do; the engine's alone from then on.
struct LiveRequest {
  enum class Phase : std::uint8_t { kWaiting, kRunning, kParked };
  struct Choice {
    std::int64_t output_tokens = 0;
    bool ended = false;
  };

  std::shared_ptr<const RequestFacts> facts;
  ScheduledRequest scheduled;  // until the scheduler takes it; borrows from `facts`
  std::shared_ptr<RequestOutput> output;
  UsageMeter meter;
  std::vector<Choice> choices;

  RequestKey key = kNoRequest;
  Phase phase = Phase::kWaiting;
  std::int32_t live_choices = 0;
  std::size_t running_index = 0;  // among those that run

  ClassId service_class() const { return facts->spec.service_class; }
};

}  // namespace berth
