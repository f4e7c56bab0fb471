#include "fakes/metrics_scene.h"

#include <chrono>

namespace berth::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

LoadSnapshot BusyLoad(TimePoint now) {
  LoadSnapshot load;
  load.free_blocks = 20;
  load.cached_blocks = 10;
  load.held_blocks = 70;
  load.unspent_blocks = 5;
  load.used_slots = 4;
  load.max_slots = 8;
  load.step_token_budget = 256;
  load.classes = {{.running_requests = 2,
                   .queued_requests = 1,
                   .waiting_since = now - seconds(3),
                   .used_blocks = 30,
                   .used_slots = 2,
                   .reach_blocks = 80,
                   .reach_slots = 8,
                   .waiting_blocks = 10,
                   .waiting_slots = 1,
                   .wanted_step_tokens = 300,
                   .guarantee_unmet = true},
                  {.running_requests = 2,
                   .parked_requests = 1,
                   .waiting_since = now - seconds(7),
                   .used_blocks = 45,
                   .debt_blocks = 2,
                   .used_slots = 2,
                   .reach_blocks = 100,
                   .reach_slots = 8,
                   .waiting_blocks = 15,
                   .waiting_slots = 1,
                   .wanted_step_tokens = 2}};
  load.queued = {{.service_class = kInteractive, .tenant = kAcme, .queued_requests = 1}};
  return load;
}

RequestEnded GoodEnd(ClassId service_class, TenantId tenant) {
  return {.service_class = service_class,
          .tenant = tenant,
          .reason = FinishReason::kLength,
          .started = true,
          .usage = {.prompt_tokens = 100,
                    .cached_tokens = 32,
                    .output_tokens = 3,
                    .reserved_blocks = 10,
                    .peak_blocks = 7,
                    .kv_block_seconds = 20.0,
                    .held_block_seconds = 14.0,
                    .accelerator_seconds = 0.75,
                    .queue_time = milliseconds(100),
                    .prefill_time = milliseconds(300),
                    .decode_time = milliseconds(600),
                    .time_to_first_token = milliseconds(400)},
          .total_time = seconds(1),
          .met_deadline = true};
}

}  // namespace

Policy ScenePolicy() {
  Policy policy;
  policy.classes.resize(2);
  policy.classes[0].name = "interactive";
  policy.classes[0].priority = 100;
  policy.classes[0].kv_guarantee_blocks = 60;
  policy.classes[0].slot_guarantee = 4;
  policy.classes[1].name = "batch";
  policy.classes[1].priority = 10;
  policy.classes[1].kv_guarantee_blocks = 20;
  policy.classes[1].kv_borrowing_limit_blocks = 80;
  policy.classes[1].slot_guarantee = 1;
  policy.classes[1].preemptible = true;
  policy.tenants.resize(2);
  policy.tenants[0].name = "default";
  policy.tenants[1].name = "acme";
  policy.max_running_sequences = 8;
  policy.max_batched_tokens = 256;
  return policy;
}

std::vector<ClassSlo> SceneSlos() {
  return {{.time_to_first_token = seconds(1), .inter_token_latency = milliseconds(200), .objective = 0.99}};
}

TelemetryOptions SceneOptions() {
  return {.model_name = "smollm2",
          .version = "0.1.0",
          .revision = "abc1234",
          .backend = "cpu (plain, 2 threads)",
          .pool = {.num_blocks = 100, .block_tokens = 16},
          .config_hash = "sha256:00",
          .rpc_methods = {"berth.v1.Inference/Generate", "berth.v1.Inference/GenerateStream"},
          .wall_clock = WallClockNow};
}

void PlayEverything(MetricSink* sink, TimePoint now) {
  sink->OnLoad(BusyLoad(now));
  sink->OnConfigReload({.successful = true, .hash = "sha256:01"});
  sink->OnConfigReload({.successful = false, .hash = "sha256:01"});
  for (const ClassId c : {kInteractive, kBatch}) {
    const TenantId tenant = c == kInteractive ? kAcme : kDefaultTenant;
    sink->OnStart(
        {.service_class = c, .tenant = tenant, .prompt_tokens = 100, .looked_up_tokens = 100, .cached_tokens = 32});
    const TokenCame tokens[] = {
        {.service_class = c, .tenant = tenant, .kind = TokenCame::Kind::kFirstOfRequest, .after = milliseconds(400)},
        {.service_class = c, .tenant = tenant, .kind = TokenCame::Kind::kNext, .after = milliseconds(300)},
        {.service_class = c, .tenant = tenant, .kind = TokenCame::Kind::kNext, .after = milliseconds(300)}};
    sink->OnTokens(tokens);
    sink->OnEnd(GoodEnd(c, tenant));
    RequestEnded bad = GoodEnd(c, tenant);
    for (const RefusalReason reason :
         {RefusalReason::kDeadlineExceeded, RefusalReason::kCancelledByClient, RefusalReason::kBackendFault}) {
      bad.reason = reason;
      bad.met_deadline = false;
      sink->OnEnd(bad);
    }
    sink->OnEnd({.service_class = c, .tenant = tenant, .reason = RefusalReason::kQueueFull});
    sink->OnPreemption(c, PreemptionMode::kRecompute);
    sink->OnPreemption(c, PreemptionMode::kSwap);
  }
  sink->OnEnd({.reason = RefusalReason::kUnknownClass});
  const StepPart parts[] = {
      {.service_class = kInteractive, .tenant = kAcme, .phase = StepPhase::kDecode, .time = milliseconds(10)},
      {.service_class = kBatch,
       .tenant = kDefaultTenant,
       .phase = StepPhase::kPrefill,
       .time = milliseconds(20),
       .recompute_time = milliseconds(5),
       .recomputed_tokens = 40}};
  sink->OnStep({.busy = milliseconds(10), .host_gap = std::nullopt, .parts = std::span(parts).first(1)});
  sink->OnStep(
      {.busy = milliseconds(20), .host_gap = std::chrono::microseconds(80), .parts = std::span(parts).last(1)});
  sink->OnStep({.busy = milliseconds(30), .host_gap = std::chrono::microseconds(80), .parts = parts});
  sink->OnKvAllocationFailure();
  for (const RpcMethod method : {0, 1}) {
    sink->OnRpcStart(method);
    sink->OnRpcEnd(method, 0, seconds(1));
    sink->OnRpcEnd(method, 8, milliseconds(1));
  }
}

}  // namespace berth::test
