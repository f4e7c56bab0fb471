// What of a submitted request never changes.
#pragma once

#include <cstdint>
#include <vector>

#include "berth/kv.h"
#include "berth/request.h"
#include "berth/units.h"
#include "engine/end_rule.h"
#include "engine/ticket.h"

namespace berth {

// Made by Submit, then read by the engine's thread and the output thread alike, without a lock.
struct RequestFacts {
  TicketNumber ticket = 0;
  GenerateSpec spec;
  std::vector<TokenId> prompt;
  KvDemand demand;
  EndRule end_rule;
  std::int64_t required_tokens = 1;  // of each choice, before the deadline, as its class said when it was submitted
};

}  // namespace berth
