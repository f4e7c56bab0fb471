// What names a request between the engine and whoever sent it.
#pragma once

#include <cstdint>

namespace berth {

// Tells a ticket from every other that the engine ever gave, and the request that was submitted with it.
using TicketNumber = std::int64_t;

// One choice of a request.
struct ChoiceName {
  TicketNumber ticket = 0;
  std::int32_t choice = 0;
};

}  // namespace berth
