// What waits for the engine's thread, and where that thread waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "admission/outlook.h"
#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "berth/request.h"
#include "engine/live_list.h"
#include "engine/live_request.h"
#include "engine/ticket.h"

namespace berth {

struct CancelNote {
  TicketNumber ticket = 0;
  RefusalReason reason = RefusalReason::kCancelledByClient;
};

// What would become of a request that is not submitted; `answer` is called once on the engine's thread and must not
// block. Where the engine ends before, it is dropped uncalled.
struct Question {
  GenerateSpec spec;  // class, tenant, n, arrival and deadline
  KvDemand demand;
  std::function<void(RequestOutlook)> answer;
};

// Taken whole, in one go.
struct Mail {
  std::vector<std::unique_ptr<LiveRequest>> submitted;
  std::vector<CancelNote> cancelled;
  std::vector<ChoiceName> stopped;  // by a stop string
  std::vector<std::shared_ptr<LiveQuestion>> live_questions;
  std::vector<Question> questions;
  std::optional<Policy> policy;  // the newest
  std::optional<TimePoint> drain_until;
  std::vector<std::chrono::steady_clock::time_point> steps_done;  // one for each, in order; real time
  bool stop = false;

  // Keeps the memory.
  void Clear();
};

// Thread-safe. Bounded by the tickets: each is submitted once, cancelled once, and each of its choices stopped once;
// by those who wait for an answer, who ask one question at a time, and by the steps in flight.
class Inbox {
 public:
  static constexpr std::size_t kMaxQuestions = 64;

  // --- Any thread.
  // With the cancel that came before it, if there was one: both are read in the same turn. False after Drain: the
  // request is left as it was.
  bool Submit(std::unique_ptr<LiveRequest>* request, std::optional<CancelNote> cancelled);
  void Cancel(CancelNote note);
  void StopChoice(ChoiceName choice);
  void AskLive(std::shared_ptr<LiveQuestion> question);
  // False where kMaxQuestions wait already.
  bool Ask(Question question);
  void SetPolicy(Policy policy);
  // No more requests; at `until` the rest must end. Of several calls the earliest `until` holds.
  void Drain(TimePoint until);
  // One more step is done: Await would not wait.
  void NoteStepDone();
  // The engine's thread ends once nothing is live.
  void Stop();

  // --- The engine's thread.
  // Waits until there is mail, at most `timeout` where one is given, and takes it all. `mail` is overwritten; its
  // memory is what the next mail is gathered in.
  void WaitAndTake(std::optional<Duration> timeout, Mail* mail);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_:
  Mail mail_;
  std::optional<TimePoint> drain_until_;
  bool stop_ = false;
  bool unread_ = false;
};

}  // namespace berth
