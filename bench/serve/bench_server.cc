// The real gRPC server and engine over a backend without a model: what serving costs around the steps.
#include <malloc.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/serve_drain.h"
#include "cli/serve_policy.h"
#include "cli/signals.h"
#include "config/policy_file.h"
#include "engine/engine.h"
#include "fakes/word_tokenizer.h"
#include "frontend/server.h"
#include "paced_backend.h"
#include "telemetry/process_stats.h"

namespace berth::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFooter[] =
    "The first line on standard output is one JSON object with the address. SIGHUP prints another: the bytes that are\n"
    "allocated (with what the C library keeps for each thread: GLIBC_TUNABLES=glibc.malloc.tcache_count=0 leaves that\n"
    "out) and those that are resident. SIGTERM drains, then the exit code is 0.\n\n"
    "Without --config there are two classes: 'interactive' has everything and refuses what does not fit; 'batch' "
    "queues\n"
    "and has what interactive leaves idle.\n\n"
    "Examples:\n"
    "  serve_bench_server --step 20000            a model whose steps take 20 ms\n"
    "  serve_bench_server                         one that takes no time: what is left is the server's own";

struct Options {
  std::string config_path;
  std::string listen = "127.0.0.1:0";
  std::int64_t step_us = 0;
  std::int32_t max_sequences = 256;
  std::int32_t context_tokens = 2048;
  std::int64_t pool_blocks = 0;  // 0 = a full context for every sequence
  std::int32_t max_queue = 64;
  std::int64_t drain_seconds = 20;
};

[[noreturn]] void Die(const std::string& message) {
  std::cerr << "serve_bench_server: " << cli::OneLine(message) << "\n";
  std::exit(2);
}

ServerConfig TwoClasses(const Options& options) {
  ClassSettings interactive;
  interactive.name = "interactive";
  interactive.priority = 100;
  interactive.kv_guarantee = PercentOf(100);
  interactive.slot_guarantee = options.max_sequences;
  interactive.overload = Overload::kReject;
  interactive.queue.max_requests = options.max_queue;

  ClassSettings batch;
  batch.name = "batch";
  batch.kv_borrowing_limit = PercentOf(100);
  batch.slot_guarantee = 0;
  batch.preemptible = true;
  batch.queue.max_requests = options.max_queue;

  ServerConfig config;
  config.classes = {interactive, batch};
  config.scheduler.max_running_sequences = options.max_sequences;
  config.model.max_context_tokens = options.context_tokens;
  return config;
}

ServerConfig ReadConfig(const Options& options) {
  if (options.config_path.empty()) return TwoClasses(options);
  Diagnostics findings(options.config_path);
  PolicyFile file = ReadPolicyFile(options.config_path, Severity::kError, &findings);
  for (const std::string& line : findings.Lines()) std::cerr << cli::OneLine(line) << "\n";
  if (!findings.ok()) Die(options.config_path + ": " + findings.Summary());
  if (file.config.model.max_context_tokens == 0) file.config.model.max_context_tokens = options.context_tokens;
  return std::move(file.config);
}

KvPoolShape PoolFor(const ServerConfig& config, const Options& options) {
  const std::int32_t block_tokens = config.kv_cache.block_tokens;
  const std::int64_t full =
      config.scheduler.max_running_sequences * CeilDiv(config.model.max_context_tokens, block_tokens);
  return {.num_blocks = static_cast<std::int32_t>(options.pool_blocks > 0 ? options.pool_blocks : full),
          .block_tokens = block_tokens};
}

Policy Resolve(const ServerConfig& config, const KvPoolShape& pool) {
  Diagnostics findings(std::string{});
  // A block's bytes matter only where the file gives a size in them.
  constexpr std::int64_t kBlockBytes = 1 << 16;
  absl::StatusOr<Policy> policy =
      cli::PlanPolicy(config, {pool, kBlockBytes, config.model.max_context_tokens}, &findings);
  if (!policy.ok()) Die(std::string(policy.status().message()));
  return *std::move(policy);
}

FrontendOptions FrontendOptionsFor(const ServerConfig& config, const Options& options, const KvPoolShape& pool) {
  FrontendOptions frontend = cli::FrontendOptionsOf(config);
  frontend.listen_address = options.listen;
  frontend.model.name = "fake";
  frontend.model.config.context_tokens = config.model.max_context_tokens;
  frontend.model.max_context_tokens = config.model.max_context_tokens;
  frontend.model.pool = pool;
  return frontend;
}

void PrintMemory() {
  malloc_trim(0);  // what is free is not kept
  const Json row = {{"heap_in_use_bytes", mallinfo2().uordblks},
                    {"resident_bytes", static_cast<std::int64_t>(ReadProcessStats().resident_bytes)}};
  std::cout << row.dump() << std::endl;
}

int Serve(const Options& options) {
  cli::SignalWatcher signals;
  const ServerConfig config = ReadConfig(options);
  const KvPoolShape pool = PoolFor(config, options);

  const test::WordTokenizer tokenizer(kFakeVocabulary);
  PacedBackend backend(pool, config.model.max_context_tokens, std::chrono::microseconds(options.step_us));
  const SteadyClock clock;
  EngineOptions engine_options;
  engine_options.max_context_tokens = config.model.max_context_tokens;
  engine_options.policy = Resolve(config, pool);
  engine_options.calibration_steps = config.scheduler.calibration_steps;
  Engine engine(engine_options, &backend, &tokenizer, &clock);
  const absl::StatusOr<std::unique_ptr<GrpcServer>> server =
      GrpcServer::Start(FrontendOptionsFor(config, options, pool), &engine, &tokenizer, &clock);
  if (!server.ok()) Die(std::string(server.status().message()));

  cli::StopRequest stop;
  signals.SetHandler([&stop](int signal) { stop.Set(signal); });
  signals.SetHangupHandler(PrintMemory);
  const Json start = {{"grpc", (*server)->address()},
                      {"step_us", options.step_us},
                      {"max_sequences", config.scheduler.max_running_sequences},
                      {"max_context_tokens", config.model.max_context_tokens},
                      {"pool_blocks", pool.num_blocks}};
  std::cout << start.dump() << std::endl;
  stop.Wait();
  if (!(*server)->Shutdown(std::chrono::seconds(options.drain_seconds))) std::_Exit(1);  // a step that never ended
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("The real gRPC server and engine over a backend without a model");
  app.footer(kFooter);
  app.add_option("--step", options.step_us, "microseconds that every step takes; default 0: done at once")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--config", options.config_path,
                 "policy file; what it says of memory and addresses has no meaning here");
  app.add_option("--listen", options.listen, "HOST:PORT; default: any free port of the loopback");
  app.add_option("--max-sequences", options.max_sequences, "sequences at once, without --config; default 256")
      ->check(CLI::Range(1, 4096));
  app.add_option("--context", options.context_tokens, "tokens of prompt and output together; default 2048")
      ->check(CLI::Range(16, 1 << 20));
  app.add_option("--pool-blocks", options.pool_blocks, "KV blocks; default: a full context for every sequence")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-queue", options.max_queue, "places in each class's queue, without --config; default 64")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--drain", options.drain_seconds, "seconds that SIGTERM leaves to what runs; default 20")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  return Serve(options);
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) { return berth::bench::Main(argc, argv); }
