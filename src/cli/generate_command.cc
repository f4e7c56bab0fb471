#include <cstdio>
#include <memory>
#include <stop_token>
#include <utility>

#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/request_flags.h"
#include "cli/runtime.h"
#include "cli/signals.h"

namespace berth::cli {
namespace {

struct GenerateOptions {
  ServerConfig config;
  PromptFlags prompt;
  RequestFlags request;
  bool json = false;
};

Json AnswerJson(const Answer& answer, const std::vector<TokenId>& prompt, const GenerateSpec& spec,
                const Runtime& runtime) {
  const auto piece = [&](TokenId id) { return TokenText(*runtime.tokenizer, id); };
  Json json = {{"prompt_ids", prompt}};
  AddChoices(answer, spec.output, piece, &json);
  json["seed"] = spec.sampling.seed;
  if (spec.output.prompt_logprobs != kNoLogprobs) json["prompt_logprobs"] = LogprobsJson(answer.prompt_logprobs, piece);
  json["usage"] = UsageJson(answer.usage);
  json["timing"] = TimingJson(answer.usage);
  json["timing"]["load_seconds"] = ToSeconds(runtime.load_time);
  return json;
}

Outcome Generate(const GenerateOptions& options, Output& out) {
  absl::StatusOr<GenerateSpec> spec = MakeSpec(options.request, options.config.request);
  if (!spec.ok()) return FromStatus(spec.status());
  if (const absl::Status status = ReadPrompt(options.prompt, &*spec); !status.ok()) return FromStatus(status);
  spec->request_id = "generate";
  spec->output.return_token_ids = true;

  SignalWatcher signals;
  ServerConfig config = options.config;
  config.kv_cache.auto_max_contexts = spec->sampling.n;
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = StartRuntime(config);
  if (!runtime.ok()) return FromStatus(runtime.status());
  Engine& engine = *(*runtime)->engine;
  spec->arrival = (*runtime)->clock.Now();
  const absl::StatusOr<TokenizedRequest> request = TokenizeRequest(*(*runtime)->tokenizer, *spec);
  if (!request.ok()) return FromStatus(request.status());

  std::stop_source stop;
  int stopped_by = 0;
  signals.SetHandler([&](int signal) {
    stopped_by = signal;
    stop.request_stop();
  });
  // One text comes as it is made; several would get mixed up.
  const bool shows_deltas = !options.json && spec->sampling.n == 1;
  const auto on_delta = [&](const TokenDelta& delta) {
    if (shows_deltas && !delta.text.empty() && !(out.Write(delta.text) && out.Flush())) stop.request_stop();
  };
  const std::variant<Answer, Refusal> result = RunInEngine(engine, *request, on_delta, stop.get_token());
  signals.SetHandler(nullptr);
  if (const auto* refusal = std::get_if<Refusal>(&result)) return FromRefusal(*refusal);

  const Answer& answer = std::get<Answer>(result);
  if (out.closed()) return {};
  if (options.json) {
    out.WriteJson(AnswerJson(answer, request->prompt, *spec, **runtime));
  } else {
    const std::string texts = ShownTexts(answer);
    out.Write(shows_deltas ? std::string_view(texts).substr(answer.only().text.size()) : texts);
    out.Flush();
    std::fprintf(stderr, "%s\n", FiguresLine(answer).c_str());
  }
  if (answer.failure && answer.failure->reason != RefusalReason::kCancelledByClient)
    return FromRefusal(*answer.failure);
  return {stopped_by == 0 ? kExitOk : 128 + stopped_by, ""};
}

}  // namespace

void AddGenerateCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<GenerateOptions>();
  options->config.kv_cache.auto_max_contexts = 1;  // one for each choice
  options->config.classes = LocalClasses();
  options->config.scheduler.calibration_steps = 0;  // it has no deadline
  CLI::App* app = root->add_subcommand("generate", "Continue a prompt, in this process");
  AddModelFlag(app, &options->config);
  AddPromptFlags(app, &options->prompt);
  AddRequestFlags(app, &options->request, options->config.request);
  AddEngineFlags(app, &options->config);
  AddJson(
      app, &options->json,
      "one object when done: prompt_ids, output_ids, text, finish_reason, logprobs, usage, timing; with -n, choices");
  app->footer(
      "The text goes to standard output as it comes, a line of figures to standard error. With -n above 1 the texts "
      "come\n"
      "when all are done, each behind a line with its number.\n"
      "Ctrl-C stops, keeps what was generated and exits with 130.\n\n"
      "Example:\n"
      "  berth generate --prompt 'The capital of France is' --max-tokens 16");
  app->callback([=] { invocation->run = [=](Output& out) { return Generate(*options, out); }; });
}

}  // namespace berth::cli
