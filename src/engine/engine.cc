#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "engine/demand_limits.h"
#include "engine/refusals.h"
#include "engine/request_queue.h"
#include "engine/running_request.h"
#include "engine/usage_meter.h"
#include "kv/block_pool.h"

namespace berth {
namespace {

// The time `timeout` from now, or never where that is beyond time's end.
TimePoint After(TimePoint now, Duration timeout) {
  if (timeout <= Duration::zero()) return now;
  return timeout > kNoDeadline - std::max(now, TimePoint{}) ? kNoDeadline : now + timeout;
}

// Rows of padding that the backend's vocabulary has beyond the tokenizer's: they are no tokens.
std::vector<TokenId> PaddingIds(std::int32_t vocab_size, std::int32_t backend_vocab_size) {
  std::vector<TokenId> ids;
  for (TokenId id = vocab_size; id < backend_vocab_size; ++id) ids.push_back(id);
  return ids;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock);
  ~Impl();

  RequestQueue& queue() { return queue_; }
  const DemandLimits& limits() const { return limits_; }
  void Shutdown(Duration timeout);
  bool serving() const { return !faulted_ && !queue_.draining(); }
  Load load() const;

 private:
  // All of these on the engine thread.
  void Run();
  void EndOverdue(TimePoint now);
  void StartNext(TimePoint now);
  void Advance(TimePoint now);
  absl::Status RunStep(TimePoint now);
  void Complete(TimePoint now);
  void Fail(Refusal refusal, TimePoint now);
  void End(StreamEvent last_event);
  void PublishBlocks();

  // Constant after construction.
  Backend* const backend_;
  const Clock* const clock_;
  const DemandLimits limits_;
  const std::vector<TokenId> never_drawn_;
  const RunningRequest::Setting setting_;

  // Synchronised in themselves.
  RequestQueue queue_;
  std::atomic<bool> faulted_ = false;
  mutable std::mutex blocks_mutex_;
  std::int64_t held_blocks_ = 0;      // guarded by blocks_mutex_
  std::int64_t reserved_blocks_ = 0;  // guarded by blocks_mutex_

  // The engine thread's own.
  BlockPool pool_;
  std::unique_ptr<RunningRequest> running_;
  SequenceId next_sequence_ = 0;
  StepPlan plan_;
  StepResult result_;
  std::int64_t next_step_ = 0;

  std::thread thread_;  // last: it uses everything above
};

Engine::Impl::Impl(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock)
    : backend_(backend),
      clock_(clock),
      limits_{.vocab_size = std::min(tokenizer->vocab_size(), backend->info().vocab_size),
              .max_context_tokens = options.max_context_tokens,
              .pool = backend->info().pool},
      never_drawn_(PaddingIds(limits_.vocab_size, backend->info().vocab_size)),
      setting_{.tokenizer = tokenizer, .max_step_tokens = backend->info().max_step_tokens, .never_drawn = never_drawn_},
      queue_(options.max_queued_requests),
      pool_(limits_.pool) {
  BERTH_CHECK(limits_.vocab_size >= 1 && setting_.max_step_tokens >= 1);
  BERTH_CHECK(options.max_context_tokens >= 1 && options.max_context_tokens <= backend->info().max_context_tokens);
  thread_ = std::thread([this] { Run(); });
}

Engine::Impl::~Impl() {
  Shutdown(Duration::zero());
  queue_.Stop();
  thread_.join();
  BERTH_CHECK_MSG(queue_.counts().places_taken == 0, "a queue ticket outlives the engine");
}

void Engine::Impl::Shutdown(Duration timeout) {
  queue_.Drain(After(clock_->Now(), timeout));
  queue_.WaitUntilAllEnded();
}

Engine::Load Engine::Impl::load() const {
  const RequestQueue::Counts counts = queue_.counts();
  const std::lock_guard lock(blocks_mutex_);
  return {.running_requests = counts.running,
          .queued_requests = counts.waiting,
          .held_blocks = held_blocks_,
          .reserved_blocks = reserved_blocks_};
}

void Engine::Impl::Run() {
  pthread_setname_np(pthread_self(), "berth-engine");
  while (running_ != nullptr || queue_.WaitForWork()) {
    const TimePoint now = clock_->Now();
    EndOverdue(now);
    if (running_ == nullptr) StartNext(now);
    if (running_ != nullptr) Advance(now);
  }
}

void Engine::Impl::EndOverdue(TimePoint now) {
  for (RequestQueue::Overdue& overdue : queue_.TakeOverdue(now)) {
    const TokenizedRequest& request = overdue.request.request;
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    overdue.request.sink->OnEvent(Failed{.refusal = std::move(overdue.refusal),
                                         .usage = UsageWithoutStart(prompt_tokens, request.spec.arrival, now)});
    overdue.request.sink.reset();
    queue_.NoteEnded();
  }
}

void Engine::Impl::StartNext(TimePoint now) {
  std::optional<QueuedRequest> next = queue_.StartFirst();
  if (!next.has_value()) return;
  // One request at a time shares nothing with anyone: no block is entered as computed, so the salt does not matter.
  ReservationSpec spec;
  spec.request = next_sequence_;
  spec.blocks = next->demand.worst_blocks;
  spec.shared_blocks = next->demand.prompt_tokens / pool_.shape().block_tokens;
  std::optional<BlockReservation> blocks = pool_.Reserve(spec, /*salt=*/0);
  BERTH_CHECK_MSG(blocks.has_value(), "Submit lets in nothing that the empty pool cannot hold");
  running_ = std::make_unique<RunningRequest>(setting_, *std::move(next), *std::move(blocks), next_sequence_++, now);
  PublishBlocks();
  running_->Start();
}

void Engine::Impl::Advance(TimePoint now) {
  if (std::optional<Refusal> refusal = queue_.MustEnd(running_->ticket(), now)) {
    return Fail(*std::move(refusal), now);
  }
  if (now >= running_->deadline()) {
    if (!running_->answers_at_deadline()) return Fail(DeadlineExceeded(), now);
    running_->FinishAtDeadline();
    return Complete(now);
  }
  const absl::Status status = RunStep(now);
  const TimePoint after = clock_->Now();
  faulted_ = !status.ok();
  if (!status.ok()) return Fail(BackendFault(status), after);
  running_->ApplyStep(result_, after);
  if (running_->finished()) Complete(after);
}

absl::Status Engine::Impl::RunStep(TimePoint now) {
  plan_.Clear();
  plan_.step = next_step_++;
  running_->PlanStep(now, &plan_);
  PublishBlocks();
  if (absl::Status status = backend_->Submit(plan_); !status.ok()) return status;
  if (absl::Status status = backend_->Await(&result_); !status.ok()) return status;
  BERTH_CHECK(result_.step == plan_.step && result_.logits.size() == plan_.logit_rows.size());
  return absl::OkStatus();
}

void Engine::Impl::Complete(TimePoint now) {
  Completed completed{.usage = running_->usage(now), .prompt_logprobs = running_->TakePromptLogprobs()};
  End(std::move(completed));
}

void Engine::Impl::Fail(Refusal refusal, TimePoint now) {
  End(Failed{.refusal = std::move(refusal), .usage = running_->usage(now)});
}

// Whoever hears the last event finds the blocks, the id and the place free.
void Engine::Impl::End(StreamEvent last_event) {
  std::shared_ptr<EventSink> sink = running_->sink();
  const TicketNumber ticket = running_->ticket();
  running_.reset();
  PublishBlocks();
  queue_.Release(ticket);
  sink->OnEvent(std::move(last_event));
  sink.reset();  // when Shutdown returns, the engine holds no sink
  queue_.NoteEnded();
}

void Engine::Impl::PublishBlocks() {
  const std::lock_guard lock(blocks_mutex_);
  held_blocks_ = pool_.live_blocks();
  reserved_blocks_ = pool_.live_blocks() + pool_.unspent_blocks();
}

QueueTicket::QueueTicket(Engine* engine, TicketNumber number) : engine_(engine), number_(number) {}

QueueTicket::QueueTicket(QueueTicket&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)), number_(other.number_) {}

QueueTicket::~QueueTicket() {
  if (engine_ != nullptr) engine_->impl_->queue().ReturnPlace();
}

Engine::Engine(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock)
    : impl_(std::make_unique<Impl>(options, backend, tokenizer, clock)) {}

Engine::~Engine() = default;

std::variant<QueueTicket, Refusal> Engine::TakeTicket() {
  std::variant<TicketNumber, Refusal> place = impl_->queue().TakePlace();
  if (auto* refusal = std::get_if<Refusal>(&place)) return std::move(*refusal);
  return QueueTicket(this, std::get<TicketNumber>(place));
}

std::variant<KvDemand, Refusal> Engine::EstimateDemand(std::int64_t prompt_tokens, const StoppingSpec& stopping) const {
  return impl_->limits().EstimateDemand(prompt_tokens, stopping);
}

std::optional<Refusal> Engine::Submit(QueueTicket ticket, TokenizedRequest request, std::shared_ptr<EventSink> sink) {
  BERTH_CHECK_MSG(ticket.engine_ == this, "a ticket serves one Submit of the engine that gave it");
  if (std::optional<Refusal> refusal = impl_->limits().Check(request)) return refusal;
  auto demand = EstimateDemand(static_cast<std::int64_t>(request.prompt.size()), request.spec.stopping);
  if (auto* refusal = std::get_if<Refusal>(&demand)) return std::move(*refusal);
  std::optional<Refusal> refusal = impl_->queue().Push({.ticket = ticket.number_,
                                                        .request = std::move(request),
                                                        .demand = std::get<KvDemand>(demand),
                                                        .sink = std::move(sink)});
  if (!refusal.has_value()) ticket.engine_ = nullptr;  // the place is the request's now
  return refusal;
}

void Engine::Cancel(TicketNumber ticket) { impl_->queue().Cancel(ticket); }

void Engine::Shutdown(Duration timeout) { impl_->Shutdown(timeout); }

bool Engine::serving() const { return impl_->serving(); }

Engine::Load Engine::load() const { return impl_->load(); }

}  // namespace berth
