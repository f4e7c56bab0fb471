#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "admission/policy_check.h"
#include "base/check.h"
#include "engine/inbox.h"
#include "engine/live_request.h"
#include "engine/load_board.h"
#include "engine/output_stage.h"
#include "engine/published_limits.h"
#include "engine/refusals.h"
#include "engine/request_facts.h"
#include "engine/request_output.h"
#include "engine/step_loop.h"

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

// Tenants share no cached blocks, so that none learns from a fast answer what another one asked. A tenant's place in
// the policy is its own for as long as the process lives (the finaliser of SplitMix64 spreads it).
std::uint64_t CacheSalt(TenantId tenant) {
  auto salt = static_cast<std::uint64_t>(tenant) + 0x9e3779b97f4a7c15ULL;
  salt = (salt ^ (salt >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  salt = (salt ^ (salt >> 27U)) * 0x94d049bb133111ebULL;
  return salt ^ (salt >> 31U);
}

}  // namespace

class Engine::Impl final : public OutputListener {
 public:
  Impl(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock);
  ~Impl() override;

  Entrance& entrance() { return entrance_; }
  std::shared_ptr<const DemandLimits> limits() const { return limits_.Get(); }
  void Submit(TicketNumber ticket, TokenizedRequest request, std::shared_ptr<EventSink> sink);
  void Cancel(TicketNumber ticket, RefusalReason reason) {
    if (entrance_.MarkCancelled(ticket, reason)) inbox_->Cancel({ticket, reason});
  }
  std::optional<LiveList> ListLive(const LiveFilter& filter, std::size_t most, Duration patience) const;
  void Foresee(const GenerateSpec& spec, const KvDemand& demand, std::function<void(RequestOutlook)> answer);
  void SetPolicy(Policy policy);
  bool Shutdown(Duration timeout, Duration grace);
  bool serving() const { return !loop_.faulted() && !entrance_.draining(); }
  EngineSigns signs() const {
    EngineSigns signs = heartbeat_.Read();
    signs.faulted = loop_.faulted();
    return signs;
  }
  LoadSnapshot load() const { return load_.Read(); }

  // The output thread.
  void OnStopString(ChoiceName choice) override { inbox_->StopChoice(choice); }
  void OnRequestOver() override { entrance_.NoteOver(); }

 private:
  std::unique_ptr<LiveRequest> MakeLive(const std::shared_ptr<const RequestFacts>& facts,
                                        std::shared_ptr<EventSink> sink) const;
  void Refuse(TicketNumber ticket, std::unique_ptr<LiveRequest> request, Refusal refusal);

  // Constant after construction.
  Backend* const backend_;
  const Tokenizer* const tokenizer_;
  const Clock* const clock_;
  const std::vector<TokenId> never_drawn_;

  // Synchronised in themselves.
  PublishedLimits limits_;
  Entrance entrance_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  LoadBoard load_;
  Heartbeat heartbeat_;
  OutputStage output_;

  StepLoop loop_;
  std::thread thread_;  // last: it uses everything above
};

Engine::Impl::Impl(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock)
    : backend_(backend),
      tokenizer_(tokenizer),
      clock_(clock),
      never_drawn_(PaddingIds(tokenizer->vocab_size(), backend->info().vocab_size)),
      limits_(backend->info().pool, options.policy, std::min(tokenizer->vocab_size(), backend->info().vocab_size),
              options.max_context_tokens),
      entrance_(options.policy),
      output_(this, options.metrics, clock),
      loop_({.calibration_steps = options.calibration_steps, .probe_interval = options.probe_interval}, options.policy,
            backend, clock,
            {.inbox = inbox_,
             .entrance = &entrance_,
             .output = &output_,
             .load = &load_,
             .limits = &limits_,
             .heartbeat = &heartbeat_,
             .metrics = options.metrics}) {
  BERTH_CHECK(options.max_context_tokens >= 1 && options.max_context_tokens <= backend->info().max_context_tokens);
  BERTH_CHECK(ValidatePolicy(options.policy, backend->info().pool).ok());
  BERTH_CHECK(options.policy.max_batched_tokens <= backend->info().max_step_tokens);
  BERTH_CHECK(options.policy.max_running_sequences <= backend->info().max_sequences);
  thread_ = std::thread([this] { loop_.Run(); });
}

Engine::Impl::~Impl() {
  Shutdown(Duration::zero(), Duration::max());
  inbox_->Stop();
  thread_.join();
  BERTH_CHECK_MSG(entrance_.live_tickets() == 0, "a queue ticket outlives the engine");
}

void Engine::Impl::Submit(TicketNumber ticket, TokenizedRequest request, std::shared_ptr<EventSink> sink) {
  entrance_.NoteSubmitted();
  const std::shared_ptr<const DemandLimits> limits = limits_.Get();
  const GenerateSpec& spec = request.spec;
  std::optional<Refusal> refusal = limits->CheckIds(request);
  KvDemand demand{.prompt_tokens = std::ssize(request.prompt)};
  if (!refusal.has_value()) {
    std::variant<KvDemand, Refusal> estimate =
        limits->EstimateDemand(spec.service_class, spec.tenant, demand.prompt_tokens, spec.sampling.n, spec.stopping);
    if (auto* too_large = std::get_if<Refusal>(&estimate)) {
      refusal = std::move(*too_large);
    } else {
      demand = std::get<KvDemand>(estimate);
    }
  }
  EndRule rule(*tokenizer_, spec.stopping, demand.max_output_tokens, never_drawn_);
  const ClassPolicy& service_class = limits->policy().classes[static_cast<std::size_t>(spec.service_class)];
  const std::int64_t required_tokens = RequiredTokens(service_class, demand.max_output_tokens);
  auto facts = std::make_shared<const RequestFacts>(RequestFacts{
      ticket, std::move(request.spec), std::move(request.prompt), demand, std::move(rule), required_tokens});
  std::unique_ptr<LiveRequest> live = MakeLive(facts, std::move(sink));
  if (refusal.has_value()) return Refuse(ticket, std::move(live), *std::move(refusal));
  const auto cancelled = [&]() -> std::optional<CancelNote> {
    const std::optional<RefusalReason> reason = entrance_.WhyCancelled(ticket);
    return reason.has_value() ? std::optional(CancelNote{ticket, *reason}) : std::nullopt;
  };
  const std::optional<CancelNote> before = cancelled();
  if (!inbox_->Submit(&live, before)) return Refuse(ticket, std::move(live), Draining());
  // Or while the inbox did not know it yet.
  if (before.has_value()) return;
  if (const std::optional<CancelNote> meanwhile = cancelled()) inbox_->Cancel(*meanwhile);
}

std::unique_ptr<LiveRequest> Engine::Impl::MakeLive(const std::shared_ptr<const RequestFacts>& facts,
                                                    std::shared_ptr<EventSink> sink) const {
  const GenerateSpec& spec = facts->spec;
  auto live = std::make_unique<LiveRequest>(LiveRequest{
      .facts = facts,
      .scheduled = {},
      .output = std::make_shared<RequestOutput>(tokenizer_, facts, std::move(sink)),
      .meter = UsageMeter(facts->demand.prompt_tokens, spec.arrival),
      .choices = std::vector<LiveRequest::Choice>(static_cast<std::size_t>(spec.sampling.n)),
  });
  live->live_choices = spec.sampling.n;
  ScheduledRequest& scheduled = live->scheduled;
  scheduled.service_class = spec.service_class;
  scheduled.deadline = spec.deadline;
  scheduled.prompt = facts->prompt;
  scheduled.max_output_tokens = facts->demand.max_output_tokens;
  scheduled.salt = CacheSalt(spec.tenant);
  scheduled.sampling = &spec.sampling;
  scheduled.logprobs = spec.output.logprobs;
  scheduled.prompt_logprobs = spec.output.prompt_logprobs;
  scheduled.min_output_tokens = spec.stopping.min_output_tokens;
  scheduled.early_banned = facts->end_rule.early_banned();
  scheduled.banned = never_drawn_;
  scheduled.lender = facts;
  return live;
}

// On the caller's thread: the engine's never hears of it.
void Engine::Impl::Refuse(TicketNumber ticket, std::unique_ptr<LiveRequest> request, Refusal refusal) {
  entrance_.GiveBack(ticket);
  auto batch = std::make_unique<OutputBatch>();
  OutputRecord& record = batch->records.emplace_back();
  record.kind = OutputRecord::Kind::kEnd;
  record.request = request->output.get();
  record.end = std::make_unique<RequestEnd>(RequestEnd{.request = std::move(request->output),
                                                       .usage = request->meter.At(clock_->Now()),
                                                       .refusal = std::move(refusal),
                                                       .let_in = false});
  output_.Post(std::move(batch));
}

void Engine::Impl::Foresee(const GenerateSpec& spec, const KvDemand& demand,
                           std::function<void(RequestOutlook)> answer) {
  if (std::optional<Refusal> refusal = entrance_.Judge({.request_id = spec.request_id,
                                                        .service_class = spec.service_class,
                                                        .tenant = spec.tenant,
                                                        .n = spec.sampling.n,
                                                        .least_prompt_tokens = demand.prompt_tokens})) {
    return answer({RequestOutlook::Kind::kRefused, {}, std::move(refusal)});
  }
  Question question;
  question.spec.service_class = spec.service_class;
  question.spec.tenant = spec.tenant;
  question.spec.sampling.n = spec.sampling.n;
  question.spec.arrival = spec.arrival;
  question.spec.deadline = spec.deadline;
  question.demand = demand;
  question.answer = std::move(answer);
  inbox_->Ask(std::move(question));
}

void Engine::Impl::SetPolicy(Policy policy) {
  BERTH_CHECK(ValidatePolicy(policy, backend_->info().pool).ok());
  BERTH_CHECK(policy.max_batched_tokens <= backend_->info().max_step_tokens);
  BERTH_CHECK(policy.max_running_sequences <= backend_->info().max_sequences);
  inbox_->SetPolicy(std::move(policy));
}

bool Engine::Impl::Shutdown(Duration timeout, Duration grace) {
  entrance_.StartDraining();
  inbox_->Drain(After(clock_->Now(), timeout));
  return entrance_.WaitUntilAllOver(After(After(std::chrono::steady_clock::now(), timeout), grace));
}

// The tickets are walked on this thread; the engine's is asked for few at a time.
std::optional<LiveList> Engine::Impl::ListLive(const LiveFilter& filter, std::size_t most, Duration patience) const {
  constexpr std::size_t kTicketsAtOnce = 256;
  const auto end = After(std::chrono::steady_clock::now(), patience);
  LiveList list;
  std::vector<LiveTicket> tickets;
  for (TicketNumber from = 0; entrance_.Walk(filter, kTicketsAtOnce, most, &from, &tickets, &list.left_out);) {
  }
  for (std::size_t first = 0; first < tickets.size(); first += kLiveRowsAtOnce) {
    const auto begin = tickets.begin() + static_cast<std::ptrdiff_t>(first);
    const auto part_end = begin + static_cast<std::ptrdiff_t>(std::min(kLiveRowsAtOnce, tickets.size() - first));
    const auto question = std::make_shared<LiveQuestion>(
        std::vector<LiveTicket>(std::make_move_iterator(begin), std::make_move_iterator(part_end)));
    inbox_->AskLive(question);
    std::optional<std::vector<LiveRow>> rows = question->Wait(end - std::chrono::steady_clock::now());
    if (!rows.has_value()) return std::nullopt;
    std::move(rows->begin(), rows->end(), std::back_inserter(list.rows));
  }
  return list;
}

QueueTicket::QueueTicket(Engine* engine, TicketNumber number, const TicketRequest& request)
    : engine_(engine), number_(number), service_class_(request.service_class), tenant_(request.tenant), n_(request.n) {}

QueueTicket::QueueTicket(QueueTicket&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      number_(other.number_),
      service_class_(other.service_class_),
      tenant_(other.tenant_),
      n_(other.n_) {}

QueueTicket::~QueueTicket() {
  if (engine_ != nullptr) engine_->impl_->entrance().GiveBack(number_);
}

Engine::Engine(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock)
    : impl_(std::make_unique<Impl>(options, backend, tokenizer, clock)) {}

Engine::~Engine() = default;

std::variant<QueueTicket, Refusal> Engine::TakeTicket(const TicketRequest& request) {
  std::variant<EntranceTicket, Refusal> place = impl_->entrance().Enter(request);
  if (auto* refusal = std::get_if<Refusal>(&place)) return std::move(*refusal);
  const auto& ticket = std::get<EntranceTicket>(place);
  if (ticket.replaced.has_value()) Cancel(*ticket.replaced);
  return QueueTicket(this, ticket.number, request);
}

void Engine::Submit(QueueTicket ticket, TokenizedRequest request, std::shared_ptr<EventSink> sink) {
  BERTH_CHECK_MSG(ticket.engine_ == this, "a ticket serves one Submit of the engine that gave it");
  BERTH_CHECK(ticket.service_class_ == request.spec.service_class && ticket.tenant_ == request.spec.tenant &&
              ticket.n_ == request.spec.sampling.n);
  ticket.engine_ = nullptr;  // the place is the request's now
  impl_->Submit(ticket.number_, std::move(request), std::move(sink));
}

void Engine::Cancel(TicketNumber ticket, RefusalReason reason) { impl_->Cancel(ticket, reason); }

std::optional<TicketNumber> Engine::Find(TenantId tenant, const std::string& request_id) const {
  return impl_->entrance().Find(tenant, request_id);
}

std::optional<LiveList> Engine::ListLive(const LiveFilter& filter, std::size_t most, Duration patience) const {
  return impl_->ListLive(filter, most, patience);
}

std::variant<KvDemand, Refusal> Engine::EstimateDemand(ClassId service_class, TenantId tenant,
                                                       std::int64_t prompt_tokens, std::int32_t n,
                                                       const StoppingSpec& stopping) const {
  return impl_->limits()->EstimateDemand(service_class, tenant, prompt_tokens, n, stopping);
}

void Engine::Foresee(const GenerateSpec& spec, const KvDemand& demand, std::function<void(RequestOutlook)> answer) {
  impl_->Foresee(spec, demand, std::move(answer));
}

void Engine::SetPolicy(Policy policy) { impl_->SetPolicy(std::move(policy)); }

std::shared_ptr<const Policy> Engine::policy() const {
  std::shared_ptr<const DemandLimits> limits = impl_->limits();
  const Policy* policy = &limits->policy();
  return {std::move(limits), policy};
}

bool Engine::Shutdown(Duration timeout, Duration grace) { return impl_->Shutdown(timeout, grace); }

bool Engine::serving() const { return impl_->serving(); }

EngineSigns Engine::signs() const { return impl_->signs(); }

LoadSnapshot Engine::load() const { return impl_->load(); }

}  // namespace berth
