// A request's way from the codec into the engine: queue ticket, tokenization, Submit. It may be cancelled anywhere.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "berth/event.h"
#include "berth/metrics.h"
#include "berth/request.h"
#include "engine/engine.h"
#include "frontend/codec.h"
#include "frontend/identity.h"
#include "frontend/tokenizer_pool.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// What all calls share. Outlives them.
struct FrontendParts {
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const Clock* clock = nullptr;
  const Codec* codec = nullptr;
  TokenizerPool* pool = nullptr;
  Callers* callers = nullptr;
  MetricSink* metrics = NoMetrics();
};

// Thread-safe. A refusal on the way reaches the sink as Failed, from whichever thread found it; nothing follows it, nor
// the engine's last event.
class Submission : public std::enable_shared_from_this<Submission> {
 public:
  // Takes the ticket and returns; never blocks. The sink may have failed already then. `is_retry`: a live request of
  // the same id is an earlier attempt, which ends.
  static std::shared_ptr<Submission> Start(const FrontendParts& parts, GenerateSpec spec, bool is_retry,
                                           std::shared_ptr<EventSink> sink);

  // The client is gone: the place in the queue and the blocks go back. The engine is told why: CANCELLED_BY_CLIENT or
  // SLOW_READER. Idempotent; harmless after the end.
  void Cancel(RefusalReason reason = RefusalReason::kCancelledByClient);

 private:
  enum class State {
    kTokenizing,  // the ticket is here
    kSubmitted,   // the engine's, which ends it
    kEnded,
  };

  Submission(const FrontendParts& parts, GenerateSpec spec, std::shared_ptr<EventSink> sink);

  void TakeTicket(bool is_retry);
  std::int64_t LeastPromptTokens() const;
  void Tokenize();
  void Submit(std::vector<TokenId> prompt);
  // From kTokenizing; does nothing where Cancel was first.
  void Refuse(Refusal refusal);

  const FrontendParts parts_;
  const std::shared_ptr<EventSink> sink_;
  GenerateSpec spec_;  // belongs to the thread that tokenizes and submits

  std::mutex mutex_;
  // Guarded by mutex_.
  State state_ = State::kTokenizing;
  std::optional<QueueTicket> ticket_;
  TicketNumber ticket_number_ = 0;  // constant once there is a ticket
  bool cancelled_ = false;
};

// A text that Tokenizer::Encode refused.
Refusal EncodeFault(const absl::Status& status);

}  // namespace berth
