// One Generate or GenerateStream call between the engine, which makes events, and gRPC, which takes messages one at a
// time. Nothing here is gRPC's: the reactors (inference_service.cc) and the tests' fakes implement CallTransport.
//
// Lifetimes: the reactor and the engine each hold the call (shared_ptr), whichever goes last frees it. The transport,
// which is the reactor, lives until OnDone; it is used to write or finish only before Finish was called, which is what
// OnDone waits for, and otherwise only under the mutex that OnDone takes.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "berth/clock.h"
#include "berth/event.h"
#include "berth/metrics.h"
#include "berth/v1/inference.pb.h"
#include "frontend/encode.h"
#include "frontend/refusal_status.h"

namespace berth {

// What a call does to its RPC. Any thread; never two at once for one call.
class CallTransport {
 public:
  virtual ~CallTransport() = default;
  // Sends one message; exactly one OnWriteDone follows, which may come before Write has returned.
  virtual void Write(const google::protobuf::Message& message) = 0;
  // Ends the RPC, with a last message where `last` is not null. Once; nothing but OnDone follows. The transport may be
  // gone when it returns.
  virtual void Finish(const google::protobuf::Message* last, const CallEnding& ending) = 0;
  // A closure that ends the RPC as SLOW_READER although a message is stuck in it; it may be run after the transport is
  // gone.
  virtual std::function<void()> SlowReaderAborter() = 0;
};

// What the metrics and the log learn of a call beside its end. What was not known when it was refused stays as it is.
struct CallFacts {
  CallNames names;
  ClassId service_class = kNoClass;
  TenantId tenant = kNoTenant;
  std::int32_t choices = 1;
  TimePoint arrival{};
};

// What a slow reader is told.
Refusal SlowReaderRefusal();

// Thread-safe, as are the classes below. Events come in from one thread at a time.
//
// Every call is told to the metrics once, by its last event, just before the transport's Finish: whoever sees the
// status finds it counted. One that was aborted counts as a slow reader's.
class Call : public EventSink {
 public:
  virtual void OnWriteDone(bool ok) = 0;
  // The peer is gone: what is pending is dropped. The engine is told by Submission::Cancel, and its Failed ends the
  // call.
  virtual void OnCancel() = 0;

  // Why the peer is gone: it hung up, or it was hung up on as a slow reader.
  RefusalReason cancel_reason();

  // The transport's last word: it is not used again.
  void OnDone();

  // The transport's closure where the oldest message that gRPC has not taken over is older than `timeout`, once; else
  // null.
  std::function<void()> AborterIfStuck(TimePoint now, Duration timeout);

 protected:
  // `clock`, `metrics` and `transport` must outlive the call.
  Call(const Clock* clock, MetricSink* metrics, const EventEncoder& encoder, CallFacts facts, CallTransport* transport);

  // What an event says about how the request ends.
  void NoteLocked(const StreamEvent& event);
  // The last event was noted: how the call ends. Usage goes along once the request was admitted.
  CallEnding EndingLocked() const;
  // Nobody else touches the call's end any more: tells it to the metrics.
  void TellEnd();

  const Clock* const clock_;
  const EventEncoder encoder_;
  const CallFacts facts_;
  CallTransport* const transport_;

  std::mutex mutex_;
  // Guarded by mutex_.
  bool finish_called_ = false;
  std::optional<TimePoint> oldest_unwritten_;

 private:
  struct End {
    std::variant<FinishReason, Refusal> reason;
    Usage usage;
    std::optional<bool> met_deadline;
  };

  MetricSink* const metrics_;
  // Guarded by mutex_.
  bool admitted_ = false;
  FinishReason last_finish_ = FinishReason::kLength;
  std::optional<End> end_;
  bool done_ = false;
  bool aborted_ = false;
  bool ended_aborted_ = false;  // aborted before Finish
};

// Gathers the events and answers once.
class UnaryCall final : public Call {
 public:
  UnaryCall(const Clock* clock, MetricSink* metrics, const EventEncoder& encoder, CallFacts facts,
            CallTransport* transport);
  void OnEvent(StreamEvent event) override;
  void OnWriteDone(bool) override {}  // never asked for
  void OnCancel() override {}

 private:
  v1::Choice* ChoiceAt(std::int32_t index);
  void Finish();

  v1::GenerateResponse response_;  // touched by the thread that brings events
};

// Sends the events as they come; what piles up behind a write in flight is merged.
class StreamCall final : public Call {
 public:
  StreamCall(const Clock* clock, MetricSink* metrics, const EventEncoder& encoder, CallFacts facts,
             CallTransport* transport);
  void OnEvent(StreamEvent event) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;

 private:
  struct Pending {
    v1::GenerateStreamResponse message;
    TimePoint since;
    std::size_t tokens = 0;  // a bound on the message's size, for merging
  };

  void Enqueue(StreamEvent&& event);
  void EnqueueDelta(const TokenDelta& delta);
  Pending& NewPending();
  // Starts the next write or finishes, where neither is under way. Takes the lock, and calls gRPC without it.
  void Pump();

  // Guarded by mutex_, but for the message while writing_ or finish_called_: that one is the transport's.
  std::deque<Pending> pending_;
  Pending current_;
  bool writing_ = false;
  bool broken_ = false;  // nothing more gets through
  bool ended_ = false;   // the last event is there
};

}  // namespace berth
