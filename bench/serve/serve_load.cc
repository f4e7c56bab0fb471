// A load on a Berth server: what its clients see.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "cli/input.h"
#include "cli/output.h"
#include "load_report.h"
#include "load_run.h"
#include "workload.h"

namespace berth::bench {
namespace {

constexpr char kFooter[] =
    "A closed loop (--streams) measures what the server can do: it slows down with the server. Real callers do not: "
    "an\n"
    "open loop (--rate, --trace) sends when its time has come, and times count from then, also where the client was "
    "late\n"
    "or the queue long. A closed loop sends at once again after a refusal, so that its refusals are a flood.\n\n"
    "A request counts where it was due in the measured time; tokens, messages and the times between messages count "
    "when\n"
    "they come. A message carries one token unless the client or the server fell behind. Goodput: requests that were\n"
    "served within their class's SLO, the mean time between their tokens included.\n\n"
    "Exit code: 0, also with refusals; 1 where a call failed otherwise; 2 for what the command line has wrong.\n\n"
    "Examples:\n"
    "  serve_load --server 127.0.0.1:8433 --streams 64 --connections 4\n"
    "  serve_load --server 127.0.0.1:8433 --rate 20 --mix interactive=3,batch=1 --slo interactive=1000/200\n"
    "  serve_load --server 127.0.0.1:8433 --trace azure_llm_2023_conv.csv --speed 4 --duration 60";

struct Options {
  LoadOptions load;
  WorkloadOptions workload;
  std::string trace_path;
  std::string mix;
  std::vector<std::string> slos;
  std::optional<double> warm_up_s;
  double duration_s = 10.0;
  double drain_s = 10.0;
  double timeout_ms = 0.0;
  bool json = false;
};

[[noreturn]] void Die(const std::string& message, int code = 2) {
  std::cerr << "serve_load: " << cli::OneLine(message) << "\n";
  std::exit(code);
}

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// "interactive=3,batch=1"; a name alone has the weight 1.
std::vector<ClassShare> ParseMix(const std::string& text) {
  std::vector<ClassShare> mix;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::size_t equals = part.find('=');
    ClassShare share{.name = part.substr(0, equals)};
    if (equals != std::string::npos && !absl::SimpleAtod(part.substr(equals + 1), &share.weight)) share.weight = -1.0;
    if (share.name.empty() || !(share.weight > 0.0 && share.weight <= 1e9)) {
      Die("--mix has '" + part + "': write CLASS=WEIGHT, such as interactive=3,batch=1");
    }
    mix.push_back(std::move(share));
  }
  return mix;
}

// "CLASS=TTFT/ITL" in milliseconds; either may be left out.
void ParseSlo(const std::string& text, const std::vector<ClassShare>& mix, std::vector<Slo>* slos) {
  const std::size_t equals = text.find('=');
  const std::vector<std::string> parts =
      absl::StrSplit(equals == std::string::npos ? std::string() : text.substr(equals + 1), '/');
  const auto bound = [&](const std::string& part) -> std::optional<Duration> {
    double ms = 0.0;
    if (part.empty()) return std::nullopt;
    if (!absl::SimpleAtod(part, &ms) || !(ms > 0.0 && ms < 1e9)) {
      Die("--slo has '" + text + "': write CLASS=TTFT/ITL in milliseconds, such as interactive=1000/200");
    }
    return Seconds(ms / 1e3);
  };
  const std::string name = text.substr(0, equals);
  bool known = false;
  for (std::size_t i = 0; i < mix.size(); ++i) {
    if (mix[i].name != name || parts.size() > 2) continue;
    (*slos)[i] = {bound(parts[0]), parts.size() == 2 ? bound(parts[1]) : std::nullopt};
    known = true;
  }
  if (!known) Die("--slo has '" + text + "': write CLASS=TTFT/ITL in milliseconds, for a class of --mix");
}

void ReadTrace(Options* options) {
  if (options->trace_path.empty()) return;
  const absl::StatusOr<std::string> text = cli::ReadTextFile(options->trace_path);
  if (!text.ok()) Die(std::string(text.status().message()));
  absl::StatusOr<std::vector<Arrival>> trace = ParseTrace(*text);
  if (!trace.ok()) Die(options->trace_path + ": " + std::string(trace.status().message()));
  options->load.trace = *std::move(trace);
}

// What flags mean once the server is known.
void Resolve(Options* options) {
  LoadOptions& load = options->load;
  if ((load.streams > 0) + (load.rate > 0.0) + !options->trace_path.empty() != 1) {
    Die("give one of --streams, --rate and --trace");
  }
  if (options->duration_s == 0.0 && load.requests == 0 && options->trace_path.empty()) {
    Die("--duration 0 measures until --requests have ended: give it too");
  }
  ReadTrace(options);
  const absl::StatusOr<ServerFacts> facts = AskServer(load.server);
  if (!facts.ok()) Die(std::string(facts.status().message()), 1);
  WorkloadOptions& workload = options->workload;
  workload.vocab_size = facts->vocab_size;
  workload.context_tokens = facts->context_tokens;
  workload.mix =
      options->mix.empty() ? std::vector<ClassShare>{{.name = facts->default_class}} : ParseMix(options->mix);
  load.slos.resize(workload.mix.size());
  for (const std::string& slo : options->slos) ParseSlo(slo, workload.mix, &load.slos);
  load.warm_up = Seconds(options->warm_up_s.value_or(options->duration_s == 0.0 ? 0.0 : 1.0));
  load.duration = Seconds(options->duration_s);
  load.drain = Seconds(options->drain_s);
  load.timeout = Seconds(options->timeout_ms / 1e3);
}

int Measure(Options options) {
  Resolve(&options);
  Workload workload(options.workload);
  std::deque<Tally> tallies(options.workload.mix.size());
  LoadRun run(options.load, &workload, &tallies);
  if (const absl::Status connected = run.Connect(); !connected.ok()) Die(std::string(connected.message()), 1);
  const LoadResult result = run.Run();
  const nlohmann::ordered_json report = ReportJson(options.load, options.workload, tallies, result);
  std::cout << (options.json ? report.dump() + "\n" : ReportText(report)) << std::flush;
  std::int64_t failed = 0;
  for (const Tally& tally : tallies) failed += Total(tally.failed());
  return failed > 0 ? 1 : 0;
}

void AddArrivalFlags(CLI::App* app, Options* options) {
  LoadOptions& load = options->load;
  app->add_option("--streams", load.streams, "closed loop: so many callers, each with one request at a time")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--rate", load.rate, "open loop: requests a second, arriving at random")
      ->check(CLI::Range(0.001, 1e6));
  app->add_option("--trace", options->trace_path,
                  "open loop: arrivals of a file: CSV of time, prompt tokens, output tokens; or Mooncake's JSONL");
  app->add_option("--speed", load.speed, "of the trace; default 1")->check(CLI::Range(1e-3, 1e6));
  app->add_option("--connections", load.connections, "that the calls are spread over; default 1")
      ->check(CLI::Range(1, 1024));
  app->add_option("--warm-up", options->warm_up_s,
                  "seconds before anything is measured; default 1, or 0 with --duration 0")
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--duration", options->duration_s,
                  "seconds that are measured; 0 = until the last request; default 10")
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--drain", options->drain_s, "seconds that what runs has to end, then it is cancelled; default 10")
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--requests", load.requests, "send no more than these")->check(CLI::PositiveNumber);
  load.max_open = 10'000;
  app->add_option("--max-open", load.max_open,
                  "open loop: calls at once, beyond which an arrival is 'not sent'; default 10000")
      ->check(CLI::PositiveNumber);
}

void AddRequestFlags(CLI::App* app, Options* options) {
  WorkloadOptions& workload = options->workload;
  app->add_option("--mix", options->mix,
                  "CLASS=WEIGHT,...: shares of the requests; default: the server's default class");
  app->add_option("--prompt", workload.prompt_tokens, "tokens in; default 128")->check(CLI::PositiveNumber);
  app->add_option("--output", workload.output_tokens, "tokens out; default 128")->check(CLI::PositiveNumber);
  app->add_flag("--vary", workload.vary, "lengths from 1 to these");
  app->add_flag("--text", workload.text, "prompts are text: the server tokenizes them");
  app->add_option("--cancel", workload.cancelled, "share of the requests that are given up in the middle")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--timeout", options->timeout_ms, "gRPC deadline of each call, in milliseconds; default: none")
      ->check(CLI::Range(0.0, 1e9));
  app->add_option("--slo", options->slos, "CLASS=TTFT/ITL in milliseconds, once for each class; default: none");
  app->add_option("--seed", workload.seed, "another seed, other requests; default 0");
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("A load on a Berth server, and what its clients see: times, goodput, refusals");
  app.footer(kFooter);
  app.add_option("--server", options.load.server, "HOST:PORT or unix:PATH")->required();
  AddArrivalFlags(&app, &options);
  AddRequestFlags(&app, &options);
  app.add_option("--pid", options.load.server_pid, "of the server, for its CPU time and memory")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", options.json, "one object");
  CLI11_PARSE(app, argc, argv);
  return Measure(std::move(options));
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) { return berth::bench::Main(argc, argv); }
