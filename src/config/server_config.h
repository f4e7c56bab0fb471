// What a server is started with. Every default lives here, once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/policy.h"

namespace berth {

struct ModelSettings {
  std::string path;                     // empty = the default model in the user's cache
  std::string served_name;              // empty = the file's name without its ending
  std::int32_t max_context_tokens = 0;  // 0 = what the model was trained for
};

struct KvCacheSettings {
  std::int32_t block_tokens = 16;
  std::optional<KvDtype> dtype;  // absent = bf16, or float32 with compute.float32
  // Bytes for the KV pool; 0 = auto: half of the memory that is free once the weights are loaded, but no more than
  // auto_max_contexts full contexts need.
  std::int64_t memory_bytes = 0;
  std::int32_t auto_max_contexts = 16;
  // Bytes beside the pool for what preempted requests had computed; 0 = it is computed again.
  std::int64_t host_swap_bytes = 0;
};

struct ComputeSettings {
  bool float32 = false;  // activations in float32, and KV too unless kv_cache.dtype says otherwise: slow, exact
  int threads = 0;       // 0 = the machine's cores
};

struct SchedulerSettings {
  std::int32_t max_running_sequences = 64;
  std::int32_t max_batched_tokens = 2048;  // tokens in one step
  // Steps at the start that serve nobody and teach how long steps take; deadlines are judged by it.
  std::int32_t calibration_steps = 16;
};

// What a service class may have. Shares are of the KV pool, 0 to 1.
struct ClassSettings {
  std::string name;
  std::int32_t priority = 0;  // higher goes first
  double kv_guarantee = 0.0;
  double kv_borrowing_limit = 0.0;  // beyond the guarantee
  bool preemptible = false;
  std::int32_t max_preemptions = 3;
  std::optional<std::int32_t> max_sequence_tokens;  // prompt + output; absent = the context
  std::optional<std::int32_t> max_output_tokens;    // absent = what a sequence leaves
  Overload overload = Overload::kQueue;
  std::int32_t max_queued_requests = 64;
  std::optional<std::int64_t> max_queued_tokens;  // absent = no bound but that of requests
  Duration max_wait = std::chrono::seconds(60);
  std::optional<Duration> inter_token_slo;
};

// `berth serve` without a policy file: "interactive", which answers or refuses at once, and "batch", which borrows what
// interactive leaves idle, and is preempted for it.
std::vector<ClassSettings> ServerClasses();
// A command that runs its own requests and nobody else's: one class, "local", that has the whole pool and queues
// whatever does not fit yet.
std::vector<ClassSettings> LocalClasses();

struct RequestSettings {
  std::int32_t default_output_tokens = 256;
  std::int32_t max_stop_strings = 16;
  std::int32_t max_stop_string_bytes = 1024;
  std::int32_t max_logit_bias = 1024;
  std::int32_t max_logprobs = 20;
  std::int32_t max_request_id_bytes = 128;
};

struct ListenSettings {
  std::string grpc = "127.0.0.1:8433";  // port 0 = any free port
  std::int32_t max_message_bytes = 4 * 1024 * 1024;
  Duration drain_timeout = std::chrono::seconds(20);
  Duration write_timeout = std::chrono::seconds(10);
};

// Every request is counted for this tenant: there are no credentials to tell others apart.
inline constexpr char kDefaultTenant[] = "default";

struct ServerConfig {
  ModelSettings model;
  KvCacheSettings kv_cache;
  ComputeSettings compute;
  SchedulerSettings scheduler;
  std::vector<ClassSettings> classes = ServerClasses();
  std::string default_class;  // what an unnamed class means; empty = the first one
  RequestSettings request;
  ListenSettings server;

  KvDtype kv_dtype() const { return kv_cache.dtype.value_or(compute.float32 ? KvDtype::kFloat32 : KvDtype::kBf16); }
};

}  // namespace berth
