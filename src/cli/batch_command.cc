#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/batch_input.h"
#include "cli/batch_output.h"
#include "cli/batch_progress.h"
#include "cli/batch_run.h"
#include "cli/commands.h"
#include "cli/fingerprint.h"
#include "cli/flags.h"
#include "cli/request_flags.h"
#include "cli/request_line.h"
#include "cli/runtime.h"
#include "cli/signals.h"

namespace berth::cli {
namespace {

struct BatchOptions {
  ServerConfig config = LocalConfig(std::nullopt);
  ConfigFlags flags;
  RequestFlags request;
  std::string input;
  std::string output;
  std::int32_t concurrency = 64;
  bool overwrite = false;
  bool json = false;
};

// What makes an answer what it is, beside the line itself. Threads, memory and the blocks' size do not.
absl::StatusOr<Fingerprint> FingerprintOptions(const BatchOptions& options) {
  const absl::StatusOr<std::string> path = ResolveModelPath(options.config.model);
  if (!path.ok()) return path.status();
  absl::StatusOr<Fingerprint> fingerprint = FingerprintModel(*path);
  if (!fingerprint.ok()) return fingerprint;
  fingerprint->Add(DumpJson(FieldsJson(options.request, options.config.request)));
  fingerprint->Add(KvDtypeName(options.config.kv_dtype()));
  fingerprint->Add(options.config.compute.float32 ? "float32" : "default");
  fingerprint->Add(std::to_string(options.config.model.max_context_tokens));
  const absl::StatusOr<ChosenBackend> backend = ChooseBackend(options.config);
  if (!backend.ok()) return backend.status();
  if (backend->device) fingerprint->Add("cuda");  // whose arithmetic is another
  return fingerprint;
}

std::string DefaultOutput(const std::string& input) {
  if (input == "-") return "-";
  const std::string ending = ".jsonl";
  return (input.ends_with(ending) ? input.substr(0, input.size() - ending.size()) : input) + ".out.jsonl";
}

Json SummaryJson(const BatchOptions& options, const BatchCounts& counts, bool interrupted) {
  return {{"output", options.output},
          {"lines", counts.lines ? Json(*counts.lines) : Json(nullptr)},
          {"answered", counts.answered},
          {"failed", counts.failed},
          {"skipped", counts.skipped},
          {"interrupted", interrupted},
          {"prompt_tokens", counts.prompt_tokens},
          {"output_tokens", counts.output_tokens},
          {"seconds", ToSeconds(counts.elapsed)},
          {"output_tokens_per_second", counts.tokens_per_second()}};
}

Outcome Summarize(const BatchOptions& options, const BatchCounts& counts, int stopped_by, Output& out) {
  if (options.json) out.WriteJson(SummaryJson(options, counts, stopped_by != 0));
  const std::string lines = GroupDigits(counts.ended()) + (counts.lines ? " of " + GroupDigits(*counts.lines) : "");
  if (stopped_by != 0) {
    return {128 + stopped_by, "stopped after " + lines + " lines: the same command goes on from there"};
  }
  if (counts.failed > 0) {
    return Fault(GroupDigits(counts.failed) + " of " + GroupDigits(counts.ended()) +
                 " lines failed, each says why in its \"error\"; the same command tries them again");
  }
  std::fprintf(stderr, "%s lines answered, %s answered before · %s output tokens in %s · %s tokens/s · %s\n",
               GroupDigits(counts.answered).c_str(), GroupDigits(counts.skipped).c_str(),
               GroupDigits(counts.output_tokens).c_str(), MinutesAndSeconds(ToSeconds(counts.elapsed)).c_str(),
               Fixed(counts.tokens_per_second(), 1).c_str(), options.output.c_str());
  return {};
}

bool IsInput(const std::string& path, const BatchInput& input) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && info.st_dev == input.info().st_dev && info.st_ino == input.info().st_ino;
}

Outcome Batch(BatchOptions options, Output& out) {
  options.flags.Apply(&options.config);
  if (options.output.empty()) options.output = DefaultOutput(options.input);
  if (options.json && options.output == "-") return UsageError("--json needs a file for the answers: give one with -o");
  const absl::StatusOr<std::unique_ptr<BatchInput>> input = BatchInput::Open(options.input);
  if (!input.ok()) return FromStatus(input.status());
  if ((*input)->is_file() && IsInput(options.output, **input)) {
    return UsageError("the answers cannot go to the file that the requests come from: give another -o");
  }
  const absl::StatusOr<Fingerprint> fingerprint = FingerprintOptions(options);
  if (!fingerprint.ok()) return FromStatus(fingerprint.status());
  SignalWatcher signals;
  const absl::StatusOr<std::unique_ptr<BatchOutput>> output = BatchOutput::Open(options.output, options.overwrite);
  if (!output.ok()) return FromStatus(output.status());
  const RemainingLines remaining(*fingerprint, output->get(), options.input, options.output);
  const std::int64_t skipped = (*output)->answers();
  std::optional<std::int64_t> lines;
  if ((*input)->is_file()) {
    const absl::StatusOr<std::int64_t> counted = remaining.CountLines(input->get());
    if (!counted.ok()) return FromStatus(counted.status());
    lines = *counted;
    if (*lines == skipped) return Summarize(options, {.lines = lines, .skipped = skipped}, 0, out);
  }

  if (const absl::Status status = (*output)->DropUnanswered(); !status.ok()) return FromStatus(status);
  Diagnostics findings("");  // a command of one's own has no classes to be warned of
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = StartRuntime(options.config, &findings);
  if (!runtime.ok()) return FromStatus(runtime.status());
  const RequestLineParser parser(options.request, options.config.request);
  BatchProgress progress(lines, skipped);
  BatchRun run({&parser, runtime->get(), input->get(), &remaining, output->get(), &progress});
  int stopped_by = 0;
  signals.SetHandler([&](int signal) {
    stopped_by = signal;
    run.RequestStop();
  });
  absl::Status status = run.Go(options.concurrency);
  signals.SetHandler(nullptr);
  const BatchCounts counts = progress.counts();
  progress.Stop();
  status.Update((*output)->Sync());
  if (!status.ok()) return FromStatus(status);
  return (*output)->closed() ? Outcome() : Summarize(options, counts, stopped_by, out);
}

}  // namespace

void AddBatchCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App* app = root->add_subcommand("batch", "Answer a file of prompts, in this process");
  app->add_option("FILE", options->input, "one JSON object a line; - is standard input")->required();
  AddText(app, "-o,--output", &options->output, "FILE",
          "where the answers go, one a line; - is standard output; default: FILE.out.jsonl beside the input")
      ->group("Output");
  app->add_flag("--overwrite", options->overwrite, "start over: what the output file holds is lost")->group("Output");
  AddInt(app, "--concurrency", &options->concurrency, 1, 1024,
         "requests in flight; default " + std::to_string(options->concurrency))
      ->group("Engine");
  for (const RequestField& field : LineFields(options->config.request)) AddRequestField(app, field, &options->request);
  AddListFlags(app, &options->request, options->config.request);
  AddEngineFlags(app, &options->flags, options->config);
  AddJson(app, &options->json,
          "a summary when done, as one object: lines, answered, failed, skipped, output_tokens, ...");
  app->footer(
      "A line is {\"prompt\": TEXT} or {\"token_ids\": [...]}, with an \"id\" of your own and whatever this request "
      "wants\n"
      "otherwise than the flags say, by their names or the API's (\"max_tokens\" or \"max_output_tokens\", \"stop\",\n"
      "\"seed\", \"n\", \"logit_bias\": {\"ID\": B}, ...). An answer is one line, in the order in which they are "
      "done:\n"
      "  {\"index\": 0, \"id\": ..., \"request_hash\": ..., \"choices\": [{\"index\": 0, \"text\": ..., ...}], "
      "\"usage\": ...}\n"
      "\"index\" is the line's number, from 0. A line that is no request, or cannot run, is answered with an\n"
      "\"error\": {\"reason\", \"message\"}; the others go on, and the exit code is 1.\n\n"
      "A run that was stopped or killed goes on where it was when the same command is given again: lines that are\n"
      "answered are not run again, lines that failed are. If a line that is answered has changed, or the model or a "
      "flag\n"
      "that changes answers has, nothing is run. Ctrl-C stops the run, keeps what is done and exits with 130.\n\n"
      "Example:\n"
      "  berth batch prompts.jsonl --max-tokens 64 -o answers.jsonl");
  app->callback([=] { invocation->run = [=](Output& out) { return Batch(*options, out); }; });
}

}  // namespace berth::cli
