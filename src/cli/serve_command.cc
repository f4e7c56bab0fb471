#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/runtime.h"
#include "cli/serve_policy.h"
#include "cli/signals.h"
#include "config/size.h"
#include "frontend/server.h"

namespace berth::cli {
namespace {

struct ServeOptions {
  std::string config_path;  // empty = none
  ConfigFlags flags;
  bool json = false;
};

FrontendOptions MakeFrontendOptions(const Runtime& runtime) {
  const ServerConfig& config = runtime.config;
  FrontendOptions options;
  options.listen_address = config.server.grpc;
  options.tls = config.server.tls.pem;
  options.connections.max_message_bytes = config.server.max_message_bytes;
  options.connections.max_metadata_bytes = config.server.max_metadata_bytes;
  options.connections.max_streams = config.server.max_streams_per_connection;
  options.connections.max_memory_bytes = config.server.max_memory_bytes;
  options.connections.max_age = config.server.max_connection_age;
  options.identity = IdentityOf(config);
  options.write_timeout = config.server.write_timeout;
  options.limits.max_stop_strings = config.request.max_stop_strings;
  options.limits.max_stop_string_bytes = config.request.max_stop_string_bytes;
  options.limits.max_logit_bias = config.request.max_logit_bias;
  options.limits.max_logprobs = config.request.max_logprobs;
  options.limits.max_request_id_bytes = config.request.max_request_id_bytes;
  options.model.name = config.model.served_name;
  options.model.config = runtime.model;
  options.model.max_context_tokens = config.model.max_context_tokens;
  options.model.pool = runtime.pool.shape;
  options.model.kv_dtype = config.kv_dtype();
  return options;
}

void LogDecisions(const Runtime& runtime) {
  const ServerConfig& config = runtime.config;
  spdlog::info("model {}: {} parameters, {} layers, loaded in {:.1f} s", config.model.served_name,
               GroupDigits(runtime.parameters), runtime.model.layers, ToSeconds(runtime.load_time));
  spdlog::info("backend {}", runtime.backend->info().name);
  spdlog::info("KV cache: {} blocks of {} tokens in {}, {}", GroupDigits(runtime.pool.shape.num_blocks),
               runtime.pool.shape.block_tokens, KvDtypeName(config.kv_dtype()), FormatBytes(runtime.pool.bytes));
  const std::int64_t pool_tokens = std::int64_t{runtime.pool.shape.num_blocks} * runtime.pool.shape.block_tokens;
  spdlog::info("context: {} tokens a request", GroupDigits(config.model.max_context_tokens));
  for (const ClassPolicy& c : runtime.policy.classes) {
    spdlog::info("class {}: {} blocks guaranteed, {} at most; {} tokens a request", c.name,
                 GroupDigits(c.kv_guarantee_blocks), GroupDigits(c.ceiling_blocks()),
                 GroupDigits(c.max_sequence_tokens));
  }
  if (config.model.max_context_tokens > runtime.model.context_tokens) {
    spdlog::warn("the model was trained for {} tokens: answers beyond that length get worse",
                 GroupDigits(runtime.model.context_tokens));
  }
  if (pool_tokens < config.model.max_context_tokens) {
    spdlog::warn(
        "the KV cache holds {} tokens, less than one full context: longer requests are refused; raise --kv-memory",
        GroupDigits(pool_tokens));
  }
}

Json StartJson(const Runtime& runtime, const std::string& address) {
  const ServerConfig& config = runtime.config;
  return {{"grpc", address},
          {"model", config.model.served_name},
          {"parameters", runtime.parameters},
          {"backend", runtime.backend->info().name},
          {"threads", config.compute.threads},
          {"kv_blocks", runtime.pool.shape.num_blocks},
          {"block_tokens", runtime.pool.shape.block_tokens},
          {"kv_dtype", KvDtypeName(config.kv_dtype())},
          {"kv_bytes", runtime.pool.bytes},
          {"max_context_tokens", config.model.max_context_tokens}};
}

// A connection takes a file, and the usual soft limit of 1024 is there for programs that use select; gRPC stops to
// listen for good where it cannot accept.
void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Where the main thread waits for the first signal.
class StopRequest {
 public:
  void Set(int signal) {
    const std::lock_guard lock(mutex_);
    signal_ = signal;
    set_.notify_all();
  }
  int Wait() {
    std::unique_lock lock(mutex_);
    set_.wait(lock, [this] { return signal_ != 0; });
    return signal_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  int signal_ = 0;  // guarded by mutex_
};

const char* SignalName(int signal) { return signal == SIGINT ? "SIGINT" : signal == SIGHUP ? "SIGHUP" : "SIGTERM"; }

// What is wrong with the configuration, as `berth check` tells it.
Outcome ConfigFault(const absl::Status& status, const Diagnostics& findings) {
  if (!findings.file().empty()) {
    for (const std::string& line : findings.Lines()) std::fprintf(stderr, "%s\n", OneLine(line).c_str());
  }
  return FromStatus(status);
}

Outcome Serve(const ServeOptions& options, Output& out) {
  StopRequest stop;
  SignalWatcher signals;
  RaiseOpenFileLimit();
  spdlog::set_default_logger(spdlog::stderr_color_mt("berth"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");

  Diagnostics findings(options.config_path);
  absl::StatusOr<PolicyFile> file = ReadServerConfig(options.config_path, options.flags, &findings);
  if (!file.ok()) return ConfigFault(file.status(), findings);
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = StartRuntime(file->config, &findings);
  if (!runtime.ok()) return ConfigFault(runtime.status(), findings);
  for (const std::string& line : findings.Lines()) spdlog::warn("{}", OneLine(line));
  const absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(
      MakeFrontendOptions(**runtime), (*runtime)->engine.get(), (*runtime)->tokenizer.get(), &(*runtime)->clock);
  if (!server.ok()) return UsageError(std::string(server.status().message()));

  LogDecisions(**runtime);
  spdlog::info("callers: {}", DescribeSecurity((*runtime)->config));
  Json start = StartJson(**runtime, (*server)->address());
  std::atomic<Duration> drain_timeout = file->config.server.drain_timeout;
  std::unique_ptr<ServedPolicy> policy;
  if (!options.config_path.empty()) {
    spdlog::info("policy {}, sha256 {}; not served yet: server.ops, server.admin, server.drain_delay",
                 options.config_path, file->sha256);
    start["config_sha256"] = file->sha256;
    policy = std::make_unique<ServedPolicy>(*std::move(file), options.config_path, options.flags, runtime->get(),
                                            server->get(), &drain_timeout);
    if (const absl::Status started = policy->Start(); !started.ok()) return FromStatus(started);
  }
  signals.SetHandler([&](int signal) { stop.Set(signal); });
  spdlog::info("listening on {}", (*server)->address());
  if (options.json) {
    out.WriteJson(start);
    out.Flush();
    if (Outcome written = out.Finish(); !written.ok()) return written;
  }

  if (policy != nullptr) signals.SetHangupHandler([&policy] { policy->RequestReload(); });
  const int signal = stop.Wait();
  signals.SetHangupHandler(nullptr);
  policy.reset();
  const Duration drain = drain_timeout;
  spdlog::info("{}: draining for at most {:.0f} s; a second signal exits at once", SignalName(signal),
               ToSeconds(drain));
  (*server)->Shutdown(drain);
  spdlog::info("stopped");
  return {};
}

}  // namespace

void AddServeCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<ServeOptions>();
  ConfigFlags* flags = &options->flags;
  const ServerConfig defaults;
  CLI::App* app = root->add_subcommand("serve", "Serve a model over gRPC");
  AddText(app, "--config", &options->config_path, "FILE",
          "policy file, such as configs/berth.yaml; the other flags override its keys; 'berth check' explains it")
      ->group("Server");
  AddConfigText(
      app, "--served-name", flags, [](ServerConfig* c) -> std::string& { return c->model.served_name; }, "NAME",
      "what clients call the model; default: the file's name")
      ->group("Model");
  AddConfigText(
      app, "--grpc", flags, [](ServerConfig* c) -> std::string& { return c->server.grpc; }, "HOST:PORT",
      "where to listen; port 0 = any free one; default " + defaults.server.grpc)
      ->group("Server");
  AddParsedInt(app, "--max-queue", 1, 1 << 20,
               "requests of a class that may wait; default " + std::to_string(ClassSettings().queue.max_requests),
               [flags](std::int32_t value) {
                 flags->Set([value](ServerConfig* c) {
                   for (ClassSettings& each : c->classes) each.queue.max_requests = value;
                 });
               })
      ->group("Server");
  AddConfigBytes(
      app, "--host-swap", flags, [](ServerConfig* c) -> std::int64_t& { return c->kv_cache.host_swap_bytes; },
      "memory for what preempted requests had computed, with a unit (1GiB); default 0: it is computed again")
      ->group("Engine");
  AddEngineFlags(app, flags, defaults);
  AddJson(app, &options->json, "one object on standard output once the server listens: grpc, model, kv_blocks, ...");
  app->footer(
      "The log goes to standard error; the line 'listening on HOST:PORT' says that the server is ready. SIGTERM or "
      "Ctrl-C\n"
      "lets running requests finish, then exits with 0; a second one exits at once. A changed policy file is taken in\n"
      "while it runs, whole or not at all; SIGHUP asks for it.\n\n"
      "Example:\n"
      "  berth serve --config configs/berth.yaml --model model.gguf");
  app->callback([=] { invocation->run = [=](Output& out) { return Serve(*options, out); }; });
}

}  // namespace berth::cli
