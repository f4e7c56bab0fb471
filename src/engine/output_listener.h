// What the output thread tells the engine.
#pragma once

#include "engine/ticket.h"

namespace berth {

// Told by the output thread; any lock in it is short.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  // A stop string ended the choice: its later tokens are dropped, and computing them is a waste. Told before the sink
  // hears of it.
  virtual void OnStopString(ChoiceName choice) = 0;
  // A request's last event is out and its sink is let go.
  virtual void OnRequestOver() = 0;
};

}  // namespace berth
