// The engine's thread: the sole owner of admission, scheduler and block pool, and the only one that drives the backend.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "admission/admission.h"
#include "base/index.h"
#include "berth/admission.h"
#include "berth/backend.h"
#include "berth/clock.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "berth/step.h"
#include "engine/entrance.h"
#include "engine/heartbeat.h"
#include "engine/inbox.h"
#include "engine/live_list.h"
#include "engine/live_request.h"
#include "engine/load_board.h"
#include "engine/output_batch.h"
#include "engine/output_stage.h"
#include "engine/published_limits.h"
#include "engine/synthetic_steps.h"
#include "kv/block_pool.h"
#include "scheduler/scheduler.h"

namespace berth {

// src/engine/README.md says what each phase of a turn may do. What lies between a step's end and the next step's submit
// is the host gap: nothing there allocates per token, waits for a lock that is held for long, or logs.
class StepLoop {
 public:
  // What the other threads touch as well; all of it outlives the loop.
  struct Shared {
    std::shared_ptr<Inbox> inbox;  // the backend's threads may still be ringing when the loop is gone
    Entrance* entrance = nullptr;
    OutputStage* output = nullptr;
    LoadBoard* load = nullptr;
    PublishedLimits* limits = nullptr;
    Heartbeat* heartbeat = nullptr;
    MetricSink* metrics = nullptr;
  };
  struct Options {
    std::int32_t calibration_steps = 0;
    Duration probe_interval{};
  };

  // `backend` and `clock` must outlive the loop.
  StepLoop(const Options& options, const Policy& policy, Backend* backend, const Clock* clock, const Shared& shared);
  ~StepLoop();

  // The engine's thread; returns once the inbox says stop and nothing is live.
  void Run();

  // Any thread. Whether the backend's last step failed.
  bool faulted() const { return faulted_; }

 private:
  using RealTime = std::chrono::steady_clock;

  // A step that the backend has.
  struct Flight {
    bool probe = false;
    bool before_fault = false;  // so that it does not tell whether the backend is back
    Duration predicted{};
    RealTime::time_point submitted = {};
    std::optional<Duration> host_gap = {};  // before it, where that is known
  };

  std::optional<Duration> HowLongToWait() const;
  void Turn();

  // mail.cc: what the other threads ask for.
  void OpenMail(TimePoint now);
  void Receive(std::unique_ptr<LiveRequest> request, TimePoint now);
  // All but the key.
  AdmissionRequest Ask(const GenerateSpec& spec, const KvDemand& demand) const;
  void AdoptPolicy(const Policy& policy, TimePoint now);
  void ApplyStops(TimePoint now);
  bool AllChoicesStopped(const LiveRequest& request) const;

  // live_list.cc: what operators ask.
  void AnswerLiveQuestions(TimePoint now);
  LiveRow Describe(LiveTicket ticket, const LiveRequest& request, TimePoint now) const;

  // step_loop.cc: steps.
  bool OldestIsDone() const { return !in_flight_.empty() && !done_.empty(); }
  bool MayPlan() const;
  void NoteStepsDone();
  void Collect();
  void NoteBusy();
  void NoteIdle();
  void DropStep(const absl::Status& status);
  void ReportPromptLogprobs();
  void ShareOutTime(std::optional<Duration> host_gap, TimePoint now);
  void TakeToken(const DrawnToken& drawn, TimePoint now);
  void Advance(TimePoint now);
  void Submit(const StepPlan& step, TimePoint now);
  void ProbeIfDue();
  void NoteFault(const absl::Status& status);

  // lives.cc: how requests start, wait again and end.
  void Digest(const AdmissionPlan& plan, TimePoint now);
  void Start(const AdmissionPlan::Start& start, TimePoint now);
  void Park(RequestKey key, TimePoint now);
  void EndByPlan(const AdmissionPlan::Ending& ending, TimePoint now);
  void EndChoice(LiveRequest* request, std::int32_t choice, TimePoint now);
  void End(LiveRequest* request, std::optional<Refusal> refusal, TimePoint now);
  void SendEnd(LiveRequest* request, std::optional<Refusal> refusal, bool let_in, TimePoint now);
  void EnterRunning(LiveRequest* request);
  void LeaveRunning(LiveRequest* request);
  OutputRecord& AddRecord(OutputRecord::Kind kind, LiveRequest* request);
  void Settle();

  // tell.cc: what the metrics hear. All of it once the next step is submitted.
  void TellStep();
  void TellLoad();

  const Options options_;
  Backend* const backend_;
  const Clock* const clock_;
  const Shared shared_;
  std::atomic<bool> faulted_ = false;

  // The core. The scheduler is made once calibration has taught its cost model.
  BlockPool pool_;
  Admission admission_;
  std::optional<Scheduler> scheduler_;

  std::unordered_map<RequestKey, std::unique_ptr<LiveRequest>> live_;
  std::unordered_map<TicketNumber, LiveRequest*> by_ticket_;
  std::vector<LiveRequest*> running_;
  RequestKey next_key_ = 0;

  Mail mail_;
  std::optional<Policy> next_policy_;
  std::vector<ChoiceName> stops_;  // told by the output thread, not applied yet
  std::optional<TimePoint> drain_until_;

  std::deque<Flight> in_flight_;           // in the order of Submit
  std::deque<RealTime::time_point> done_;  // when the first of them were, as far as the backend has told
  // The backend tells of each step that was submitted, calibration's as well, maybe after Await has returned.
  std::int64_t awaited_steps_ = 0;
  std::int64_t told_steps_ = 0;
  bool plan_ahead_ = false;  // no plan was made yet behind what is in flight
  bool broken_ = false;      // what is in flight is behind a step that failed
  StepResult result_;
  std::optional<SyntheticStep> probe_;
  absl::Status fault_;
  RealTime::time_point next_probe_;
  bool progressed_ = false;  // by the last plan: the next one may do more

  // Of this turn; told to the other threads at its end.
  std::unique_ptr<OutputBatch> batch_;
  std::vector<Entrance::Change> changes_;
  std::vector<Duration> retry_after_;  // by class, after a plan
  LoadSnapshot load_;
  std::vector<std::int64_t> wanted_tokens_;  // by class: scratch
  std::vector<BlockId> released_;            // scratch

  // For the metrics. Real time: a step's end is when the backend said so.
  std::optional<RealTime::time_point> idle_since_;  // the backend's last step ended, and nothing had to be waited for
  std::optional<StepRan> ran_;                      // a step that is not told yet
  std::vector<StepPart> parts_;                     // its parts
  std::int64_t told_failed_swaps_ = 0;
};

}  // namespace berth
