// The one thread that owns admission and the KV book and drives the backend. src/engine/README.md is its contract.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "berth/admission.h"
#include "berth/backend.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/kv.h"
#include "berth/request.h"
#include "tokenizer/tokenizer.h"

namespace berth {

struct EngineOptions {
  std::int32_t max_queued_requests = 64;  // requests that wait while one runs
  std::int32_t max_context_tokens = 0;    // prompt + output of one sequence; ≤ the backend's
};

class Engine;

// Tells a ticket from every other that the engine ever gave.
using TicketNumber = std::int64_t;

// A place in the queue, taken before the prompt is tokenized. Move-only; gives the place back unless Submit used it.
class QueueTicket {
 public:
  ~QueueTicket();
  QueueTicket(QueueTicket&& other) noexcept;
  QueueTicket& operator=(QueueTicket&&) = delete;

  // Names the request that is submitted with this ticket, for Cancel. No other ticket of the engine ever has it.
  TicketNumber number() const { return number_; }

 private:
  friend class Engine;
  QueueTicket(Engine* engine, TicketNumber number);
  Engine* engine_;
  TicketNumber number_;
};

// All methods are thread-safe. Requests run one at a time, in the order in which Submit accepted them.
class Engine {
 public:
  // `backend`, `tokenizer` and `clock` must outlive the engine. Starts the engine thread.
  Engine(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock);
  // As Shutdown(0). No ticket may be left.
  ~Engine();

  // A place in the queue, or QUEUE_FULL / DRAINING. Atomic: however many arrive at once, no more are given than the
  // bound.
  std::variant<QueueTicket, Refusal> TakeTicket();

  // What would be reserved for a prompt of so many tokens, with max_output_tokens resolved (a default is cut to what
  // the context leaves, an asked one is refused); or REQUEST_TOO_LARGE when the context or the empty pool cannot hold
  // it.
  std::variant<KvDemand, Refusal> EstimateDemand(std::int64_t prompt_tokens, const StoppingSpec& stopping) const;

  // Queues the request. A refusal (too large, duplicate live id, ids outside the vocabulary) comes back here and the
  // sink hears nothing; otherwise the sink gets the events, the last one exactly once.
  std::optional<Refusal> Submit(QueueTicket ticket, TokenizedRequest request, std::shared_ptr<EventSink> sink);

  // Ends the queued or running request that was submitted with this ticket with CANCELLED_BY_CLIENT, within one step;
  // nothing happens where there is none. By ticket, since an id may be a later request's by the time the cancel comes.
  void Cancel(TicketNumber ticket);

  // Refuses newcomers with DRAINING; what is queued or runs goes on. Returns when all has ended, or when `timeout`
  // passed: then the rest ends with DRAINING. Idempotent.
  void Shutdown(Duration timeout);

  // False while draining and after a backend fault that no later step has disproved.
  bool serving() const;

  struct Load {
    std::int64_t running_requests = 0;
    std::int64_t queued_requests = 0;
    std::int64_t held_blocks = 0;
    std::int64_t reserved_blocks = 0;
  };
  Load load() const;

 private:
  friend class QueueTicket;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace berth
