// What a server is started with: the policy file as values, quantities as they were written. Every default lives here,
// once. config/key_table.h names the keys of the file that set these fields; fields that no key names are fixed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/certificate.h"
#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "config/quantity.h"

namespace berth {

struct ModelSettings {
  std::string path;                     // empty = the default model in the user's cache
  std::string served_name;              // empty = the file's name without its ending
  std::int32_t max_context_tokens = 0;  // 0 = what the model was trained for
};

struct KvCacheSettings {
  std::int32_t block_tokens = 16;
  std::optional<KvDtype> dtype;  // absent = bf16, or float32 with compute.float32
  // For the KV pool: bytes, or a share: on the CPU of the memory that is free once the weights are loaded, on a CUDA
  // device of all it has, less weights and workspace. Absent = auto: half of what is free, or 90% of the device, and no
  // more than auto_max_contexts full contexts need.
  std::optional<Quantity> memory;
  std::optional<std::int32_t> auto_max_contexts;  // absent = 16 on the CPU, any number on a device
  // Bytes beside the pool for what preempted requests had computed; 0 = it is computed again.
  std::int64_t host_swap_bytes = 0;
};

// kAuto: a CUDA device where there is one that can run what is asked for, else the CPU.
enum class BackendChoice : std::uint8_t { kAuto, kCpu, kCuda };

struct ComputeSettings {
  BackendChoice backend = BackendChoice::kAuto;
  std::int32_t device = 0;  // of the CUDA devices
  bool float32 = false;     // activations in float32, and KV too unless kv_cache.dtype says otherwise: slow, exact; CPU
  std::int32_t threads = 0;  // 0 = the machine's cores
};

struct SchedulerSettings {
  std::int32_t max_running_sequences = 64;
  std::int32_t max_batched_tokens = 2048;  // tokens in one step
  // Steps at the start that serve nobody and teach how long steps take; deadlines are judged by it.
  std::int32_t calibration_steps = 16;
};

// Output of a request that asks for no length.
inline constexpr std::int32_t kDefaultOutputTokens = 256;

struct RequestSettings {
  std::int32_t default_output_tokens = kDefaultOutputTokens;  // of commands that run their own requests
  std::int32_t max_stop_strings = 16;
  std::int32_t max_stop_string_bytes = 1024;
  std::int32_t max_logit_bias = 1024;
  std::int32_t max_logprobs = 20;
  std::int32_t max_request_id_bytes = 128;
};

struct TlsSettings {
  std::string certificate;  // paths of PEM files; empty = none
  std::string key;
  std::string client_ca;  // clients must have a certificate of it (mTLS)
  TlsPem pem;             // what these files held when the policy file was read
};

// Who may speak for other tenants.
struct TrustedIdentitySettings {
  std::vector<std::string> subjects;  // of client certificates
  std::vector<std::string> key_ids;
};

struct ServerSettings {
  // Where to listen: HOST:PORT (0 = any free port), [IPV6]:PORT or unix:PATH.
  std::string grpc = "127.0.0.1:8433";
  std::string ops = "127.0.0.1:9090";
  std::string admin = "unix:berth-admin.sock";
  TlsSettings tls;
  std::int32_t max_message_bytes = 4 * 1024 * 1024;
  std::int32_t max_metadata_bytes = 16 * 1024;  // of one call's headers
  // More than a queue of the default length over one connection, so that the queue refuses and not the transport.
  std::int32_t max_streams_per_connection = 1024;
  std::int64_t max_memory_bytes = std::int64_t{512} << 20U;  // of gRPC: what is received and not yet taken, or not sent
  std::optional<Duration> max_connection_age;                // then clients are asked to connect anew
  Duration drain_delay = std::chrono::seconds(5);
  Duration drain_timeout = std::chrono::seconds(20);
  Duration write_timeout = std::chrono::seconds(10);
  // Bound the queues of all classes together; absent = each class's own bounds alone.
  std::optional<std::int64_t> max_queued_requests;
  std::optional<std::int64_t> max_queued_tokens;
  TrustedIdentitySettings trusted_identity;
  std::vector<std::string> admin_subjects;  // of client certificates
};

struct QueueSettings {
  std::int64_t max_requests = 64;
  std::optional<std::int64_t> max_tokens;  // prompt + output of what waits
  Duration max_wait = std::chrono::seconds(60);
};

struct DeadlineSettings {
  std::optional<Duration> default_timeout;  // of a request that names none
  DeadlineRequirement require = DeadlineRequirement::kFirstToken;
  std::int64_t useful_tokens = 16;
};

struct SloSettings {
  std::optional<Duration> time_to_first_token;
  std::optional<Duration> inter_token_latency;
  std::int64_t objective_millionths = 990'000;  // of requests
};

struct ClassSettings {
  std::string name;
  std::int32_t priority = 0;
  Quantity kv_guarantee;
  Quantity kv_borrowing_limit;
  std::optional<Quantity> kv_lending_limit;    // absent = all of the guarantee
  std::optional<std::int64_t> slot_guarantee;  // absent = DefaultSlotGuarantee
  bool preemptible = false;
  std::int32_t max_preemptions = 3;
  std::optional<std::int64_t> max_sequence_tokens;  // absent = the context
  std::optional<std::int64_t> max_output_tokens;    // absent = what the sequence leaves
  std::int64_t default_output_tokens = kDefaultOutputTokens;
  Overload overload = Overload::kQueue;
  QueueSettings queue;
  DeadlineSettings deadline;
  SloSettings slo;
  ClassStop stop = ClassStop::kNone;
  std::vector<std::string> objectives;            // names by which gateways ask for the class
  std::int64_t prefill_min_share_millionths = 0;  // of a step's token budget; scheduler.prefill_min_share names it
};

struct ApiKeySettings {
  std::string id;
  std::string sha256;  // of the key, 64 lower-case hexadecimal digits
  bool admin = false;

  bool operator==(const ApiKeySettings&) const = default;
};

struct TenantSettings {
  std::string name;
  double weight = 1.0;
  std::optional<std::vector<std::string>> classes;  // absent = all
  std::optional<std::int64_t> max_concurrent_requests;
  std::optional<Quantity> max_kv;
  std::optional<std::int64_t> tokens_per_minute;
  std::optional<std::int64_t> burst_tokens;  // absent = one minute's
  std::vector<ApiKeySettings> api_keys;      // of api_key_sha256, then of the file
  std::string api_key_file;                  // api_key_sha256_file
  std::vector<std::string> subjects;         // of client certificates

  bool has_credentials() const { return !api_keys.empty() || !api_key_file.empty() || !subjects.empty(); }
};

enum class ReloadMode : std::uint8_t { kWatch, kSignal };

// The classes and tenants of a server that was given none: "interactive", which answers or refuses at once, and
// "batch", which borrows what interactive leaves idle, and is preempted for it; one tenant.
std::vector<ClassSettings> DefaultClasses();
std::vector<TenantSettings> DefaultTenants();
// The name under which callers run that name no tenant, and whose limits unlisted tenants get.
inline constexpr char kDefaultTenant[] = "default";

struct ServerConfig {
  ModelSettings model;
  KvCacheSettings kv_cache;
  ComputeSettings compute;
  SchedulerSettings scheduler;
  RequestSettings request;
  ServerSettings server;
  std::vector<ClassSettings> classes = DefaultClasses();
  std::string default_class = "interactive";
  std::vector<TenantSettings> tenants = DefaultTenants();
  // Tenants that are not listed and get limits of their own all the same, those of `default`; further ones share them.
  std::int32_t max_unlisted_tenants = 1000;
  ReloadMode reload = ReloadMode::kWatch;

  KvDtype kv_dtype() const { return kv_cache.dtype.value_or(compute.float32 ? KvDtype::kFloat32 : KvDtype::kBf16); }
};

// For a command that runs its own requests and nobody else's: one class, "local", that has the whole pool and queues
// whatever does not fit yet; no calibration, as there is no deadline. `max_contexts`: auto_max_contexts.
ServerConfig LocalConfig(std::optional<std::int32_t> max_contexts);

}  // namespace berth
