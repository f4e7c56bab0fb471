#include "config/key_table.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostCount = 1'000'000;
constexpr std::int64_t kMostSum = 1'000'000'000'000;

constexpr Rule Switch() { return {.kind = ValueKind::kSwitch}; }
constexpr Rule Whole(std::int64_t min, std::int64_t max, std::string_view word = {}) {
  return {.kind = ValueKind::kWhole, .min = min, .max = max, .word = word};
}
constexpr Rule Real(std::int64_t above, std::int64_t max) {
  return {.kind = ValueKind::kReal, .min = above, .max = max};
}
constexpr Rule Time(Duration min, Duration max, std::string_view word = {}) {
  return {.kind = ValueKind::kDuration, .min = min.count(), .max = max.count(), .word = word};
}
constexpr Rule Share(std::int64_t min, std::int64_t max) { return {.kind = ValueKind::kShare, .min = min, .max = max}; }
constexpr Rule Bytes(std::int64_t min, std::int64_t max) { return {.kind = ValueKind::kBytes, .min = min, .max = max}; }
constexpr Rule Amount(unsigned units, std::string_view word = {}) {
  return {.kind = ValueKind::kQuantity, .word = word, .units = units};
}
constexpr Rule Word() { return {.kind = ValueKind::kWord}; }
constexpr Rule Text(TextKind kind) { return {.kind = ValueKind::kText, .text = kind}; }
constexpr Rule Texts(TextKind kind, std::string_view word = {}) {
  return {.kind = ValueKind::kTexts, .word = word, .text = kind};
}
constexpr Rule ApiKeys() { return {.kind = ValueKind::kApiKeys}; }

constexpr unsigned kOfPool = kInBlocks | kInBytes | kInShares;
constexpr Effect kLive = Effect::kLive;
constexpr Effect kRestart = Effect::kRestart;

// A field by way of a scope.
#define BERTH_FIELD(expression) [](const Scope& s) -> Field { return &s.expression; }

constexpr Key kKeys[] = {
    {"model.path", kRestart, Text(TextKind::kPath), BERTH_FIELD(config->model.path),
     "GGUF model file, relative to the policy file's folder; absent: the default model in the user's cache"},
    {"model.name", kRestart, Text(TextKind::kLabel), BERTH_FIELD(config->model.served_name),
     "what clients call the model; absent: the file's name without its ending"},
    {"model.max_context_tokens", kRestart, Whole(1, kMostTokens, "auto"), BERTH_FIELD(config->model.max_context_tokens),
     "most tokens of prompt and output together; auto: what the model was trained for"},

    {"kv_cache.block_tokens", kRestart, Whole(1, 256), BERTH_FIELD(config->kv_cache.block_tokens),
     "tokens of one KV block, a power of two"},
    {"kv_cache.dtype", kRestart, Word(), BERTH_FIELD(config->kv_cache.dtype),
     "how keys and values are stored; auto: bf16, float32 with compute.float32"},
    {"kv_cache.memory", kRestart, Amount(kInBytes | kInShares, "auto"), BERTH_FIELD(config->kv_cache.memory),
     "memory of the KV pool: a size, or a share of what is free once the weights are loaded, on a CUDA device of all "
     "it "
     "has, less weights and workspace; auto: half of what is free, at most what 16 full contexts need, or 90% of the "
     "device"},
    {"kv_cache.host_swap", kRestart, Bytes(0, std::int64_t{1} << 50), BERTH_FIELD(config->kv_cache.host_swap_bytes),
     "host memory for the blocks of preempted requests; 0: they are computed again"},

    {"compute.backend", kRestart, Word(), BERTH_FIELD(config->compute.backend),
     "what runs the model; auto: a CUDA device where there is one, else the CPU"},
    {"compute.device", kRestart, Whole(0, 63), BERTH_FIELD(config->compute.device),
     "which CUDA device; berth devices lists them"},
    {"compute.float32", kRestart, Switch(), BERTH_FIELD(config->compute.float32),
     "activations in float32, on the CPU: slow and exact"},
    {"compute.threads", kRestart, Whole(1, 1024, "auto"), BERTH_FIELD(config->compute.threads),
     "CPU threads; auto: the CPUs this process may use"},

    {"scheduler.max_running_sequences", kLive, Whole(1, 65'536), BERTH_FIELD(config->scheduler.max_running_sequences),
     "sequences that may run at once, of all classes: the slots"},
    {"scheduler.max_batched_tokens", kLive, Whole(1, kMostCount), BERTH_FIELD(config->scheduler.max_batched_tokens),
     "tokens of one step; at least max_running_sequences, so that every sequence can decode in each"},
    {"scheduler.prefill_min_share.*", kLive, Share(0, kWholeMillionths),
     BERTH_FIELD(service_class->prefill_min_share_millionths),
     "share of a step's token budget that prefills of this class get even where higher classes want it all"},

    {"server.grpc", kRestart, Text(TextKind::kAddress), BERTH_FIELD(config->server.grpc),
     "where clients connect: HOST:PORT (0: any free port), [IPV6]:PORT or unix:PATH"},
    {"server.ops", kRestart, Text(TextKind::kAddress), BERTH_FIELD(config->server.ops),
     "where /metrics, /livez and /readyz are served, over plain HTTP"},
    {"server.admin", kRestart, Text(TextKind::kAddress), BERTH_FIELD(config->server.admin),
     "where berth.v1.Admin is served; over TCP only to admin_subjects and keys with admin: true"},
    {"server.tls.certificate", kRestart, Text(TextKind::kPath), BERTH_FIELD(config->server.tls.certificate),
     "PEM file with the server's certificate chain, relative to the policy file's folder; what it holds may change "
     "while "
     "the server runs"},
    {"server.tls.key", kRestart, Text(TextKind::kPath), BERTH_FIELD(config->server.tls.key),
     "PEM file with the certificate's key, without a password"},
    {"server.tls.client_ca", kRestart, Text(TextKind::kPath), BERTH_FIELD(config->server.tls.client_ca),
     "PEM file with the authorities of which every client must have a certificate (mTLS)"},
    {"server.max_message_size", kRestart, Bytes(1024, 1 << 30), BERTH_FIELD(config->server.max_message_bytes),
     "largest request message"},
    {"server.max_metadata_size", kRestart, Bytes(1024, 1 << 20), BERTH_FIELD(config->server.max_metadata_bytes),
     "headers of one call, all together"},
    {"server.max_streams_per_connection", kRestart, Whole(1, 1'000'000),
     BERTH_FIELD(config->server.max_streams_per_connection),
     "calls that one connection may have open; clients hold further ones back themselves"},
    {"server.max_memory", kRestart, Bytes(16 << 20, std::int64_t{1} << 50),
     BERTH_FIELD(config->server.max_memory_bytes),
     "memory of gRPC for messages and connections; beyond it connections are not taken and calls are ended"},
    {"server.max_connection_age", kRestart, Time(seconds(1), hours(24 * 7), "none"),
     BERTH_FIELD(config->server.max_connection_age),
     "after so long a client is asked to connect anew, as load balancing behind one address wants it; calls in it go "
     "on"},
    {"server.drain_delay", kLive, Time(seconds(0), hours(1)), BERTH_FIELD(config->server.drain_delay),
     "after SIGTERM: how long newcomers are still taken while health already says NOT_SERVING"},
    {"server.drain_timeout", kLive, Time(seconds(0), hours(24)), BERTH_FIELD(config->server.drain_timeout),
     "after drain_delay: how long running requests may take to end"},
    {"server.write_timeout", kRestart, Time(milliseconds(1), hours(1)), BERTH_FIELD(config->server.write_timeout),
     "a stream whose reader takes nothing for so long is cancelled"},
    {"server.max_queued_requests", kLive, Whole(1, kMostCount, "none"), BERTH_FIELD(config->server.max_queued_requests),
     "requests that may wait in all classes together; beyond it classes with overload: shed_lowest lose entries"},
    {"server.max_queued_tokens", kLive, Whole(1, kMostSum, "none"), BERTH_FIELD(config->server.max_queued_tokens),
     "prompt and output tokens of what waits in all classes together"},
    {"server.trusted_identity.subjects", kLive, Texts(TextKind::kSubject),
     BERTH_FIELD(config->server.trusted_identity.subjects),
     "subjects of client certificates that may name any tenant, as a gateway does"},
    {"server.trusted_identity.key_ids", kLive, Texts(TextKind::kKeyId),
     BERTH_FIELD(config->server.trusted_identity.key_ids), "ids of API keys that may name any tenant"},
    {"server.admin_subjects", kLive, Texts(TextKind::kSubject), BERTH_FIELD(config->server.admin_subjects),
     "subjects of client certificates that may call berth.v1.Admin"},

    {"classes.*.priority", kLive, Whole(-1'000'000, 1'000'000), BERTH_FIELD(service_class->priority),
     "higher goes first into common space, and prefills first"},
    {"classes.*.kv_guarantee", kLive, Amount(kOfPool), BERTH_FIELD(service_class->kv_guarantee),
     "blocks the class always gets, if need be by preempting borrowers (Kueue: nominalQuota); rounds down"},
    {"classes.*.kv_borrowing_limit", kLive, Amount(kOfPool), BERTH_FIELD(service_class->kv_borrowing_limit),
     "blocks it may use beyond its guarantee (Kueue: borrowingLimit); rounds up"},
    {"classes.*.kv_lending_limit", kLive, Amount(kOfPool, "all"), BERTH_FIELD(service_class->kv_lending_limit),
     "blocks of its idle guarantee that others may use (Kueue: lendingLimit); what it keeps back never has to be "
     "reclaimed; rounds down"},
    {"classes.*.slot_guarantee", kLive, Whole(0, 65'536, "auto"), BERTH_FIELD(service_class->slot_guarantee),
     "sequences the class always gets to run; auto: the share of max_running_sequences that its guarantee is of the "
     "pool, at least 1 where it has any"},
    {"classes.*.preemptible", kLive, Switch(), BERTH_FIELD(service_class->preemptible),
     "what it has borrowed may be taken back from running requests; only such a class may borrow what others are "
     "guaranteed"},
    {"classes.*.max_preemptions", kLive, Whole(1, 1000), BERTH_FIELD(service_class->max_preemptions),
     "preemptions of one request after which it is protected"},
    {"classes.*.max_sequence_tokens", kLive, Whole(2, kMostTokens, "none"),
     BERTH_FIELD(service_class->max_sequence_tokens), "prompt and output of one sequence; none: the context"},
    {"classes.*.max_output_tokens", kLive, Whole(1, kMostTokens, "none"), BERTH_FIELD(service_class->max_output_tokens),
     "output that a request may ask for"},
    {"classes.*.default_output_tokens", kLive, Whole(1, kMostTokens), BERTH_FIELD(service_class->default_output_tokens),
     "output of a request that asks for no length: it is reserved, so keep it near what answers take"},
    {"classes.*.overload", kLive, Word(), BERTH_FIELD(service_class->overload),
     "a request that cannot start at once: reject it, queue it, or queue it and shed the lowest priority where "
     "server.max_queued_* is reached"},
    {"classes.*.queue.max_requests", kLive, Whole(1, kMostCount), BERTH_FIELD(service_class->queue.max_requests),
     "requests that may wait"},
    {"classes.*.queue.max_tokens", kLive, Whole(1, kMostSum, "none"), BERTH_FIELD(service_class->queue.max_tokens),
     "prompt and output tokens of what waits; a larger request is never taken"},
    {"classes.*.queue.max_wait", kLive, Time(milliseconds(1), hours(24)), BERTH_FIELD(service_class->queue.max_wait),
     "how long a request may wait before it starts; also how long a preempted one that cannot be protected may be "
     "parked"},
    {"classes.*.deadline.default", kLive, Time(milliseconds(1), hours(24), "none"),
     BERTH_FIELD(service_class->deadline.default_timeout), "time a request has in all where its caller names none"},
    {"classes.*.deadline.require", kLive, Word(), BERTH_FIELD(service_class->deadline.require),
     "what must be predicted to come before the deadline for a request to be let in"},
    {"classes.*.deadline.useful_tokens", kLive, Whole(1, kMostTokens),
     BERTH_FIELD(service_class->deadline.useful_tokens), "output that counts as useful for require: useful_output"},
    {"classes.*.slo.time_to_first_token", kLive, Time(milliseconds(1), hours(24), "none"),
     BERTH_FIELD(service_class->slo.time_to_first_token), "what a request's first token should take at most"},
    {"classes.*.slo.inter_token_latency", kLive, Time(milliseconds(1), hours(1), "none"),
     BERTH_FIELD(service_class->slo.inter_token_latency),
     "what the next token should take at most; steps are kept short enough for the tightest one running"},
    {"classes.*.slo.objective", kLive, Share(1, kWholeMillionths - 1),
     BERTH_FIELD(service_class->slo.objective_millionths), "share of requests that should meet these"},
    {"classes.*.stop", kLive, Word(), BERTH_FIELD(service_class->stop),
     "hold: refuse newcomers, keep what waits waiting; drain: refuse newcomers and end what is queued (about Kueue's "
     "stopPolicy)"},
    {"classes.*.objectives", kLive, Texts(TextKind::kLabel), BERTH_FIELD(service_class->objectives),
     "inference objectives of a gateway that mean this class"},

    {"default_class", kLive, Text(TextKind::kClass), BERTH_FIELD(config->default_class),
     "class of a request that names none"},

    {"tenants.*.weight", kLive, Real(0, kMostCount), BERTH_FIELD(tenant->weight),
     "share of a class's service beside other tenants that wait"},
    {"tenants.*.classes", kLive, Texts(TextKind::kClass, "all"), BERTH_FIELD(tenant->classes),
     "classes it may use; absent: all"},
    {"tenants.*.max_concurrent_requests", kLive, Whole(1, kMostCount, "none"),
     BERTH_FIELD(tenant->max_concurrent_requests), "requests queued, parked and running"},
    {"tenants.*.max_kv", kLive, Amount(kOfPool, "none"), BERTH_FIELD(tenant->max_kv),
     "blocks its running requests may reserve; rounds up"},
    {"tenants.*.tokens_per_minute", kLive, Whole(1, kMostSum, "none"), BERTH_FIELD(tenant->tokens_per_minute),
     "prompt and output tokens in a minute, counted as reserved and corrected at the end"},
    {"tenants.*.burst_tokens", kLive, Whole(1, kMostSum, "auto"), BERTH_FIELD(tenant->burst_tokens),
     "tokens it may take at once after a pause; a larger request is never taken; auto: one minute's"},
    {"tenants.*.api_key_sha256", kLive, ApiKeys(), BERTH_FIELD(tenant->api_keys),
     "API keys that speak for the tenant, each as {id, sha256, admin: false}; make one with: printf %s KEY | "
     "sha256sum"},
    {"tenants.*.api_key_sha256_file", kLive, Text(TextKind::kPath), BERTH_FIELD(tenant->api_key_file),
     "file of more such keys, a line each: ID SHA256 [admin]; relative to the policy file's folder"},
    {"tenants.*.subjects", kLive, Texts(TextKind::kSubject), BERTH_FIELD(tenant->subjects),
     "subjects of client certificates that speak for the tenant"},

    {"reload", kRestart, Word(), BERTH_FIELD(config->reload),
     "watch: take in changes of this file and of key files as they come, and on SIGHUP; signal: on SIGHUP alone"},
};

#undef BERTH_FIELD

struct UnservedKey {
  std::string_view path;
  std::string_view message;
};

constexpr UnservedKey kUnserved[] = {
    {"server.http", "the OpenAI HTTP API is not served yet; take the key out"},
};

}  // namespace

const char* EffectName(Effect effect) { return effect == Effect::kLive ? "live" : "restart"; }

std::span<const Key> PolicyKeys() { return kKeys; }

const Key* FindKey(std::string_view path) {
  const auto* const found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return k.path == path; });
  return found == std::end(kKeys) ? nullptr : found;
}

bool IsSection(std::string_view path) {
  return path.empty() || std::any_of(std::begin(kKeys), std::end(kKeys), [&](const Key& key) {
           return key.path.size() > path.size() && key.path.starts_with(path) && key.path[path.size()] == '.';
         });
}

std::string NamedPath(std::string_view path, std::string_view name) {
  std::string named(path);
  if (const std::size_t star = named.find('*'); star != std::string::npos) named.replace(star, 1, name);
  return named;
}

std::string_view UnservedMessage(std::string_view path) {
  for (const UnservedKey& key : kUnserved) {
    if (key.path == path) return key.message;
  }
  return "";
}

}  // namespace berth
