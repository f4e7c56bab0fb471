// Many requests at once on one backend, each with its KV blocks reserved before it starts. src/engine/README.md is the
// contract.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "admission/outlook.h"
#include "berth/admission.h"
#include "berth/backend.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/kv.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "berth/request.h"
#include "engine/entrance.h"
#include "engine/heartbeat.h"
#include "engine/live_list.h"
#include "engine/ticket.h"
#include "tokenizer/tokenizer.h"

namespace berth {

struct EngineOptions {
  std::int32_t max_context_tokens = 0;  // prompt + output of one sequence; ≤ the backend's
  Policy policy;                        // valid for the backend's pool (ValidatePolicy)
  std::int32_t calibration_steps = 16;  // synthetic steps at the start that teach the step cost model; 0 = none
  // How often a backend that failed is tried again while nobody asks for anything. Real time.
  Duration probe_interval = std::chrono::seconds(1);
  // Told by the engine's own threads; never null, outlives the engine, and knows the policy's names already.
  MetricSink* metrics = NoMetrics();
};

class Engine;

// A place in a class's queue, taken before the prompt is tokenized. Move-only; gives the place back unless Submit used
// it.
class QueueTicket {
 public:
  ~QueueTicket();
  QueueTicket(QueueTicket&& other) noexcept;
  QueueTicket& operator=(QueueTicket&&) = delete;

  // Names the request that is submitted with this ticket, for Cancel. No other ticket of the engine ever has it.
  TicketNumber number() const { return number_; }

 private:
  friend class Engine;
  QueueTicket(Engine* engine, TicketNumber number, const TicketRequest& request);
  Engine* engine_;
  TicketNumber number_;
  ClassId service_class_;
  TenantId tenant_;
  std::int32_t n_;
};

// All methods are thread-safe; none but Shutdown waits for a plan or a step.
class Engine {
 public:
  // `backend`, `tokenizer` and `clock` must outlive the engine. Starts the engine's threads.
  Engine(const EngineOptions& options, Backend* backend, const Tokenizer* tokenizer, const Clock* clock);
  // As Shutdown(0). No ticket may be left.
  ~Engine();

  // A place in the class's queue, and the request id with it; or why not, in the order in which EntryDesk checks.
  // Atomic: however many arrive at once, no bound is exceeded. A request that it replaces is cancelled as by Cancel.
  std::variant<QueueTicket, Refusal> TakeTicket(const TicketRequest& request);

  // Hands the request over. The verdict is its first event: Admitted once it starts, or Failed with nothing before it.
  // Exactly one last event comes in any case, from the output thread.
  // REQUIRES: class, tenant and n are those of the ticket.
  void Submit(QueueTicket ticket, TokenizedRequest request, std::shared_ptr<EventSink> sink);

  // Ends the waiting or running request that is submitted with this ticket with `reason`, which is
  // CANCELLED_BY_CLIENT, CANCELLED_BY_OPERATOR or SLOW_READER; its blocks are free within two steps. Of several calls
  // the first counts. Nothing happens where there is none. By ticket, since an id may be a later request's by the time
  // the cancel comes.
  void Cancel(TicketNumber ticket, RefusalReason reason = RefusalReason::kCancelledByClient);

  // The ticket of the live request with this id.
  std::optional<TicketNumber> Find(TenantId tenant, const std::string& request_id) const;
  // The first `most` requests that live and match, and how many there are beyond them. Waits for the engine's thread,
  // some microseconds for each 64; absent where that does not answer within `patience`. Not for a thread that must not
  // block.
  std::optional<LiveList> ListLive(const LiveFilter& filter, std::size_t most, Duration patience) const;

  // What would be reserved for a prompt of so many tokens, with max_output_tokens resolved (a default is cut to what
  // context and class leave, an asked one is refused); or what no waiting could change, such as REQUEST_TOO_LARGE.
  // REQUIRES: class and tenant are of policy(), and n ≥ 1.
  std::variant<KvDemand, Refusal> EstimateDemand(ClassId service_class, TenantId tenant, std::int64_t prompt_tokens,
                                                 std::int32_t n, const StoppingSpec& stopping) const;

  // What would become of the request, were it submitted now; nothing is reserved. `answer` is called once, here or on
  // the engine's thread, and must not block; never where too many such questions wait or the engine ends. Class and
  // tenant must be of policy(), `demand` what EstimateDemand gave.
  void Foresee(const GenerateSpec& spec, const KvDemand& demand, std::function<void(RequestOutlook)> answer);

  // Takes effect between two steps; the metric sink must know the new names before. REQUIRES: valid for the backend's
  // pool, no larger step than the backend takes; classes and tenants keep their index, those that are gone are marked
  // removed.
  void SetPolicy(Policy policy);
  // The policy in force.
  std::shared_ptr<const Policy> policy() const;

  // Refuses newcomers with DRAINING; what waits or runs goes on until `timeout` has passed on the clock, and then ends
  // with DRAIN_TIMEOUT. Returns true when all has ended; false where that has not come within `timeout` and `grace` of
  // real time, as with a step that never ends: then the process can only be left. Idempotent.
  bool Shutdown(Duration timeout, Duration grace = Duration::max());

  // False while draining and after a backend fault that no later step has disproved.
  bool serving() const;
  // What the engine's thread is at. Never waits for it.
  EngineSigns signs() const;

  using Load = LoadSnapshot;
  // As of the last turn of the engine's thread. Whoever has heard a request's last event finds it gone.
  Load load() const;

 private:
  friend class QueueTicket;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace berth
