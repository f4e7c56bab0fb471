#include "streams.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace berth::bench {

EngineOptions OptionsFor(std::int32_t streams, std::int32_t context_tokens, const KvPoolShape& pool) {
  EngineOptions options;
  options.max_context_tokens = context_tokens;
  ClassPolicy everything;
  everything.name = "bench";
  everything.kv_guarantee_blocks = pool.num_blocks;
  everything.slot_guarantee = streams;
  everything.max_queued_requests = streams;
  options.policy.classes = {everything};
  options.policy.tenants.emplace_back().name = "bench";
  options.policy.max_running_sequences = streams;
  return options;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

// Counts, gives up where it is told to, and reports the end.
class Streams::Sink final : public EventSink {
 public:
  Sink(Streams* owner, std::int32_t stream) : owner_(owner), stream_(stream) {}

  void CancelAt(std::int64_t tokens, TicketNumber ticket) {
    cancel_at_ = tokens;
    ticket_ = ticket;
  }

  void OnEvent(StreamEvent event) override {
    if (const auto* delta = std::get_if<TokenDelta>(&event)) {
      tokens_ += std::ssize(delta->token_ids);
      if (cancel_at_ > 0 && tokens_ >= cancel_at_) owner_->engine_->Cancel(ticket_);
    } else if (std::holds_alternative<Completed>(event)) {
      owner_->Report({stream_, tokens_, false});
    } else if (const auto* failed = std::get_if<Failed>(&event)) {
      owner_->Report({stream_, tokens_, failed->refusal.reason != RefusalReason::kCancelledByClient});
    }
  }

 private:
  Streams* const owner_;
  const std::int32_t stream_;
  std::int64_t cancel_at_ = 0;
  TicketNumber ticket_ = 0;
  std::int64_t tokens_ = 0;
};

std::int32_t Streams::Length(std::int32_t most) {
  return load_.vary ? static_cast<std::int32_t>(1 + random_() % static_cast<std::uint64_t>(most)) : most;
}

TokenizedRequest Streams::MakeRequest() {
  TokenizedRequest request;
  request.spec.request_id = "bench-" + std::to_string(sent_);
  request.spec.arrival = SteadyClock().Now();
  request.spec.sampling.temperature = 0.0F;
  request.spec.stopping.max_output_tokens = Length(load_.output_tokens);
  request.spec.stopping.ignore_eos = true;
  request.prompt.resize(static_cast<std::size_t>(Length(load_.prompt_tokens)));
  for (TokenId& id : request.prompt)
    id = static_cast<TokenId>(random_() % static_cast<std::uint64_t>(load_.vocab_size));
  return request;
}

void Streams::Send(std::int32_t stream) {
  TokenizedRequest request = MakeRequest();
  ++sent_;
  auto ticket = engine_->TakeTicket({.request_id = request.spec.request_id});
  BERTH_CHECK_MSG(std::holds_alternative<QueueTicket>(ticket), "the queue holds every stream");
  const auto sink = std::make_shared<Sink>(this, stream);
  if (static_cast<double>(random_() >> 11) * 0x1p-53 < load_.cancelled) {
    sink->CancelAt(1 + request.spec.stopping.max_output_tokens / 2, std::get<QueueTicket>(ticket).number());
  }
  engine_->Submit(std::get<QueueTicket>(std::move(ticket)), std::move(request), sink);
}

void Streams::Report(const End& end) {
  const std::lock_guard lock(mutex_);
  ends_.push_back(end);
  ended_.notify_one();
}

Streams::End Streams::NextEnd() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return !ends_.empty(); });
  const End end = ends_.front();
  ends_.pop_front();
  return end;
}

Outcome Streams::Run(const std::function<void()>& all_sent) {
  const SteadyClock clock;
  const TimePoint start = clock.Now();
  Outcome outcome;
  for (std::int32_t stream = 0; stream < load_.streams && sent_ < load_.requests; ++stream) Send(stream);
  all_sent();
  for (std::int64_t ended = 0; ended < load_.requests; ++ended) {
    const End end = NextEnd();
    outcome.output_tokens += end.output_tokens;
    outcome.failed += end.failed ? 1 : 0;
    if (sent_ < load_.requests) Send(end.stream);
  }
  outcome.took = clock.Now() - start;
  return outcome;
}

}  // namespace berth::bench
