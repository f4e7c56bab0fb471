#include <cstdio>
#include <memory>
#include <stop_token>
#include <utility>

#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/request_flags.h"
#include "cli/runtime.h"
#include "cli/signals.h"

namespace berth::cli {
namespace {

struct GenerateOptions {
  ServerConfig config = LocalConfig();
  ConfigFlags flags;
  RequestFlags request;
  bool json = false;
};

// The ids that a request names must exist before they reach the sampler.
absl::Status CheckVocabulary(const GenerateSpec& spec, std::int32_t vocab_size) {
  std::vector<TokenId> named = spec.stopping.stop_token_ids;
  for (const auto& [id, bias] : spec.sampling.logit_bias) named.push_back(id);
  const absl::Status status = CheckTokenIds(named, vocab_size);
  return status.ok() ? CheckTokenIds(spec.prompt_ids, vocab_size) : status;
}

absl::StatusOr<TokenizedRequest> Tokenize(const Runtime& runtime, GenerateSpec spec) {
  // Ids past the tokenizer's are padding of the embedding: the sampler may see them, nobody can mean them.
  if (const absl::Status status = CheckVocabulary(spec, runtime.tokenizer->vocab_size()); !status.ok()) return status;
  TokenizedRequest request;
  request.prompt = std::move(spec.prompt_ids);
  if (!spec.prompt_is_ids) {
    absl::StatusOr<std::vector<TokenId>> ids =
        runtime.tokenizer->Encode(spec.prompt_text, {.parse_special = spec.parse_special_tokens, .add_bos = true});
    if (!ids.ok()) return ids.status();
    request.prompt = *std::move(ids);
  }
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt is empty: give at least one token");
  request.spec = std::move(spec);
  return request;
}

Json AnswerJson(const Answer& answer, const std::vector<TokenId>& prompt, const GenerateSpec& spec,
                const Runtime& runtime) {
  const auto piece = [&](TokenId id) { return TokenText(*runtime.tokenizer, id); };
  Json json = {{"prompt_ids", prompt},
               {"output_ids", answer.output_ids},
               {"text", answer.text},
               {"finish_reason", answer.FinishName()},
               {"stop_match", answer.finished ? StopMatchJson(*answer.finished) : Json(nullptr)},
               {"seed", spec.sampling.seed}};
  if (spec.output.logprobs != kNoLogprobs) json["logprobs"] = LogprobsJson(answer.logprobs, piece);
  if (spec.output.prompt_logprobs != kNoLogprobs) json["prompt_logprobs"] = LogprobsJson(answer.prompt_logprobs, piece);
  json["usage"] = UsageJson(answer.usage);
  json["timing"] = TimingJson(answer.usage);
  json["timing"]["load_seconds"] = ToSeconds(runtime.load_time);
  return json;
}

Outcome Generate(const GenerateOptions& options, Output& out) {
  absl::StatusOr<GenerateSpec> spec = MakeSpec(options.request, options.config.request);
  if (!spec.ok()) return FromStatus(spec.status());
  spec->request_id = "generate";
  spec->output.return_token_ids = true;

  SignalWatcher signals;
  ServerConfig config = options.config;
  options.flags.Apply(&config);
  Diagnostics findings("");  // a command of one's own has no classes to be warned of
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = StartRuntime(config, &findings);
  if (!runtime.ok()) return FromStatus(runtime.status());
  Engine& engine = *(*runtime)->engine;
  spec->arrival = (*runtime)->clock.Now();
  const absl::StatusOr<TokenizedRequest> request = Tokenize(**runtime, *spec);
  if (!request.ok()) return FromStatus(request.status());

  std::stop_source stop;
  int stopped_by = 0;
  signals.SetHandler([&](int signal) {
    stopped_by = signal;
    stop.request_stop();
  });
  const auto on_text = [&](std::string_view text) {
    if (!options.json && !(out.Write(text) && out.Flush())) stop.request_stop();
  };
  const std::variant<Answer, Refusal> result = RunInEngine(engine, *request, on_text, stop.get_token());
  signals.SetHandler(nullptr);
  if (const auto* refusal = std::get_if<Refusal>(&result)) return FromRefusal(*refusal);

  const Answer& answer = std::get<Answer>(result);
  if (out.closed()) return {};
  if (options.json) {
    out.WriteJson(AnswerJson(answer, request->prompt, *spec, **runtime));
  } else {
    if (!answer.text.empty() && answer.text.back() != '\n') out.Write("\n");
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
  CLI::App* app = root->add_subcommand("generate", "Continue a prompt, in this process");
  AddRequestFlags(app, &options->request, options->config.request);
  AddEngineFlags(app, &options->flags, options->config);
  AddJson(app, &options->json,
          "one object when done: prompt_ids, output_ids, text, finish_reason, logprobs, usage, timing");
  app->footer(
      "The text goes to standard output as it comes, a line of figures to standard error.\n"
      "Ctrl-C stops, keeps what was generated and exits with 130.\n\n"
      "Example:\n"
      "  berth generate --prompt 'The capital of France is' --max-tokens 16");
  app->callback([=] { invocation->run = [=](Output& out) { return Generate(*options, out); }; });
}

}  // namespace berth::cli
