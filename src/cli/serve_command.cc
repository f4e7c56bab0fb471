#include <sys/resource.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/live_policy.h"
#include "cli/runtime.h"
#include "cli/serve_admin.h"
#include "cli/serve_drain.h"
#include "cli/serve_metrics.h"
#include "cli/serve_policy.h"
#include "cli/server_log.h"
#include "cli/signals.h"
#include "config/size.h"
#include "frontend/admin_server.h"
#include "frontend/grpc_log.h"
#include "frontend/loading_server.h"
#include "frontend/server.h"
#include "telemetry/ops_server.h"

namespace berth::cli {
namespace {

struct ServeOptions {
  std::string config_path;  // empty = none
  ConfigFlags flags;
  std::optional<LogFormat> log_format;  // absent = DefaultLogFormat
  bool json = false;
};

FrontendOptions MakeFrontendOptions(const Runtime& runtime, ServeMetrics* metrics) {
  const ServerConfig& config = runtime.config;
  FrontendOptions options = FrontendOptionsOf(config);
  options.on_tenants = [metrics](const Policy& policy) { metrics->TellTenants(policy); };
  options.model.name = config.model.served_name;
  options.model.config = runtime.model;
  options.model.max_context_tokens = config.model.max_context_tokens;
  options.model.pool = runtime.pool.shape;
  options.model.kv_dtype = config.kv_dtype();
  options.metrics = metrics;
  return options;
}

AdminOptions MakeAdminOptions(const Runtime& runtime, Callers* callers) {
  AdminOptions options;
  options.listen_address = runtime.config.server.admin;
  options.tls = runtime.config.server.tls.pem;
  options.callers = callers;
  options.model_name = runtime.config.model.served_name;
  options.version = kBuildVersion;
  options.backend = runtime.backend->info().name;
  options.block_tokens = runtime.pool.shape.block_tokens;
  options.kv_bytes = runtime.pool.bytes;
  return options;
}

void LogDecisions(const Runtime& runtime) {
  const ServerConfig& config = runtime.config;
  spdlog::info("berth {}, revision {}", kBuildVersion, kBuildRevision);
  spdlog::info("model {}: {} parameters, {} layers, loaded in {:.1f} s", config.model.served_name,
               GroupDigits(runtime.parameters), runtime.model.layers, ToSeconds(runtime.load_time));
  if (!runtime.backend_note.empty()) spdlog::warn("{}", OneLine(runtime.backend_note));
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

// What is reached over the network. Closed in the opposite order.
struct Listeners {
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<OpsServer> ops;
  std::unique_ptr<AdminServer> admin;
};

Json StartJson(const Runtime& runtime, const Listeners& listeners) {
  const ServerConfig& config = runtime.config;
  return {{"grpc", listeners.grpc->address()},
          {"ops", listeners.ops->address()},
          {"admin", listeners.admin->address()},
          {"version", kBuildVersion},
          {"revision", kBuildRevision},
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

void LogProgress(int percent, std::int64_t total) {
  spdlog::info("loading {} of weights: {}%", FormatBytes(total), percent);
}

// What is wrong with the configuration, as `berth check` tells it.
Outcome ConfigFault(const absl::Status& status, const Diagnostics& findings, LogFormat format) {
  if (!findings.file().empty()) {
    for (const std::string& line : findings.Lines()) {
      if (format == LogFormat::kJson) {
        spdlog::error("{}", OneLine(line));
      } else {
        std::fprintf(stderr, "%s\n", OneLine(line).c_str());
      }
    }
  }
  return FromStatus(status);
}

HealthState HealthOf(const HealthMonitor& monitor) {
  const Health health = monitor.Now();
  return {.live = health.live, .ready = health.ready(), .why = health.why};
}

// All but the operators' server, which needs to know what it may do.
absl::StatusOr<Listeners> Listen(Runtime* runtime, ServeMetrics* metrics) {
  Listeners listeners;
  absl::StatusOr<std::unique_ptr<GrpcServer>> grpc = GrpcServer::Start(
      MakeFrontendOptions(*runtime, metrics), runtime->engine.get(), runtime->tokenizer.get(), &runtime->clock);
  if (!grpc.ok()) return grpc.status();
  listeners.grpc = *std::move(grpc);
  absl::StatusOr<std::unique_ptr<OpsServer>> ops = OpsServer::Start(
      {.listen_address = runtime->config.server.ops}, [metrics] { return metrics->telemetry().Page(); },
      [health = &listeners.grpc->health()] { return HealthOf(*health); });
  if (!ops.ok()) return ops.status();
  listeners.ops = *std::move(ops);
  return listeners;
}

void LogHowToReachIt(const Listeners& listeners) {
  const std::string ops = listeners.ops->address();
  spdlog::info("metrics on http://{}/metrics, probes on http://{}/livez and http://{}/readyz", ops, ops, ops);
  spdlog::info("operators: berth status --admin {}", listeners.admin->address());
  spdlog::info("try: berth client generate --server {} --prompt 'Once upon a time'", listeners.grpc->address());
  spdlog::info("listening on {}", listeners.grpc->address());
}

// `file` is the policy file, whose path is in the options; nothing of it counts where there is none.
Outcome RunUntilStopped(const ServeOptions& options, PolicyFile file, Runtime* runtime, ServeMetrics* metrics,
                        SignalWatcher* signals, Output& out) {
  StopRequest stop;
  absl::StatusOr<Listeners> listeners = Listen(runtime, metrics);
  if (!listeners.ok()) return UsageError(std::string(listeners.status().message()));
  Callers* const callers = listeners->grpc->callers();
  DrainTimes drain{{file.config.server.drain_delay}, {file.config.server.drain_timeout}};
  LivePolicy live_policy(runtime->engine.get(), callers, runtime->policy_context.pool, runtime->policy);
  std::unique_ptr<ServedPolicy> policy;
  const std::string config_sha256 = file.sha256;
  if (!options.config_path.empty()) {
    policy = std::make_unique<ServedPolicy>(std::move(file), options.config_path, options.flags, *runtime,
                                            PolicyFollowers{&live_policy, listeners->grpc.get(), metrics, &drain});
  }
  absl::StatusOr<std::unique_ptr<AdminServer>> admin = AdminServer::Start(
      MakeAdminOptions(*runtime, callers), runtime->engine.get(), &runtime->clock, &listeners->grpc->health(),
      MakeAdminHooks({.engine = runtime->engine.get(),
                      .callers = callers,
                      .policy = &live_policy,
                      .file = policy.get(),
                      .telemetry = &metrics->telemetry(),
                      .drain = [&stop] { stop.Set(StopRequest::kByOperator); }}));
  if (!admin.ok()) return UsageError(std::string(admin.status().message()));
  listeners->admin = *std::move(admin);

  LogDecisions(*runtime);
  spdlog::info("callers: {}", DescribeSecurity(runtime->config));
  Json start = StartJson(*runtime, *listeners);
  if (policy != nullptr) {
    spdlog::info("policy {}, sha256 {}", options.config_path, config_sha256);
    start["config_sha256"] = config_sha256;
    policy->SetAdmin(listeners->admin.get());
    if (const absl::Status started = policy->Start(); !started.ok()) return FromStatus(started);
  }
  signals->SetHandler([&stop](int signal) { stop.Set(signal); });
  LogHowToReachIt(*listeners);
  if (options.json) {
    out.WriteJson(start);
    out.Flush();
    if (Outcome written = out.Finish(); !written.ok()) return written;
  }
  if (policy != nullptr) signals->SetHangupHandler([&policy] { policy->RequestReload(); });
  const bool ended = DrainServer(stop.Wait(), drain, listeners->grpc.get());
  if (policy != nullptr) signals->SetHangupHandler(nullptr);
  listeners->admin.reset();
  if (!ended) ExitInMidStep();
  return {};
}

Outcome RunServer(const ServeOptions& options, LogFormat format, Output& out) {
  SignalWatcher signals(options.config_path.empty() ? SignalWatcher::Hangup::kEnds : SignalWatcher::Hangup::kIsHandled);
  RaiseOpenFileLimit();
  SendGrpcLogTo([](const std::string& line) { spdlog::warn("{}", OneLine(line)); });

  Diagnostics findings(options.config_path);
  absl::StatusOr<PolicyFile> file = ReadServerConfig(options.config_path, options.flags, &findings);
  if (!file.ok()) return ConfigFault(file.status(), findings, format);
  // From here on clients and probes get an answer, and a port in use is told before anything is loaded.
  ServerConfig bound = file->config;
  absl::StatusOr<std::unique_ptr<LoadingServer>> loading =
      LoadingServer::Start(bound.server.grpc, bound.server.tls.pem);
  if (!loading.ok()) return UsageError(std::string(loading.status().message()));
  bound.server.grpc = (*loading)->address();
  std::unique_ptr<ServeMetrics> metrics;
  const MakeMetrics make_metrics = [&](const Runtime& made) {
    metrics = std::make_unique<ServeMetrics>(made, file->sha256);
    return &metrics->telemetry();
  };
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime =
      StartRuntime(bound, &findings, make_metrics, EveryPercent(10, LogProgress));
  if (!runtime.ok()) return ConfigFault(runtime.status(), findings, format);
  for (const std::string& line : findings.Lines()) spdlog::warn("{}", OneLine(line));
  loading->reset();
  return RunUntilStopped(options, *std::move(file), runtime->get(), metrics.get(), &signals, out);
}

Outcome Serve(const ServeOptions& options, Output& out) {
  const LogFormat format = options.log_format.value_or(DefaultLogFormat());
  StartServerLog(format);
  Outcome outcome = RunServer(options, format, out);
  if (outcome.ok()) spdlog::info("stopped");
  if (format == LogFormat::kJson && !outcome.error.empty()) {
    // Whoever reads the log as JSON finds the reason there.
    spdlog::error("berth serve: {}", OneLine(std::exchange(outcome.error, "")));
  }
  return outcome;
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
  AddConfigText(
      app, "--ops", flags, [](ServerConfig* c) -> std::string& { return c->server.ops; }, "HOST:PORT",
      "where /metrics, /livez and /readyz are; port 0 = any free one; default " + defaults.server.ops)
      ->group("Server");
  AddConfigText(
      app, "--admin", flags, [](ServerConfig* c) -> std::string& { return c->server.admin; }, "unix:PATH",
      "where 'berth status' and the other operators' commands reach it; default " + defaults.server.admin)
      ->group("Server");
  AddParsedInt(
      app, "--drain-delay", 0, 3600,
      "seconds for which a server that SIGTERM ends takes newcomers still, so that load balancers can look away; "
      "default " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(defaults.server.drain_delay).count()),
      [flags](std::int32_t value) {
        flags->Set([value](ServerConfig* c) { c->server.drain_delay = std::chrono::seconds(value); });
      })
      ->group("Server");
  AddParsed(app, "--log-format", "json|text", "of the log; default: json, text on a terminal",
            [log_format = &options->log_format](const std::string& value) -> std::string {
              if (value != "json" && value != "text") return "must be json or text, not " + Quoted(value);
              *log_format = value == "json" ? LogFormat::kJson : LogFormat::kText;
              return "";
            })
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
  AddJson(app, &options->json,
          "one object on standard output once the server listens: grpc, ops, admin, model, kv_blocks, ...");
  app->footer(
      "The log goes to standard error; the line 'listening on HOST:PORT' says that the server is ready, and each\n"
      "request that ends gets a line, without prompt and answer. SIGTERM, and Ctrl-C without the delay, lets running\n"
      "requests finish, then exits with 0; a second one exits at once. A changed policy file is taken in while it\n"
      "runs, whole or not at all; SIGHUP asks for it.\n\n"
      "Example:\n"
      "  berth serve --config configs/berth.yaml --model model.gguf");
  app->callback([=] { invocation->run = [=](Output& out) { return Serve(*options, out); }; });
}

}  // namespace berth::cli
