#include <algorithm>
#include <cstdio>
#include <memory>
#include <stop_token>
#include <utility>

#include "cli/client/client.h"
#include "cli/client/retry.h"
#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/connection_flags.h"
#include "cli/flags.h"
#include "cli/request_flags.h"
#include "cli/signals.h"
#include "config/server_config.h"

namespace berth::cli {
namespace {

struct ClientGenerateOptions {
  PromptFlags prompt;
  RequestFlags request;
  RequestSettings limits;
  ConnectionFlags connection;
  std::string model;
  std::string service_class;
  std::string tenant;
  std::string request_id;
  float timeout_seconds = 0.0F;
  std::int32_t retries = kDefaultRetries;
  bool json = false;
};

Json AnswerJson(const Answer& answer, const GenerateSpec& spec) {
  Json json = {{"request_id", answer.admitted ? answer.admitted->request_id : ""}};
  AddChoices(answer, spec.output, nullptr, &json);
  json["seed"] = answer.admitted ? answer.admitted->seed : spec.sampling.seed;
  if (spec.output.prompt_logprobs != kNoLogprobs)
    json["prompt_logprobs"] = LogprobsJson(answer.prompt_logprobs, nullptr);
  json["usage"] = answer.completed ? UsageJson(answer.usage) : Json(nullptr);
  json["timing"] = answer.completed ? TimingJson(answer.usage) : Json(nullptr);
  return json;
}

// Whatever the server says no to is a fault of this run: the command line itself was well-formed.
Outcome CallFault(const absl::Status& status, const ClientGenerateOptions& options) {
  if (status.code() == absl::StatusCode::kDeadlineExceeded && options.timeout_seconds > 0) {
    return Fault("no complete answer within the " + Fixed(static_cast<double>(options.timeout_seconds), 3) +
                 " s of --timeout");
  }
  return Fault(InFlagNames(std::string(status.message())));
}

void TellRetry(const RetryNotice& notice, std::int32_t max_retries) {
  std::fprintf(stderr, "retry %d of %d in %s s: %s\n", notice.retry, max_retries,
               Fixed(ToSeconds(notice.wait), 1).c_str(), OneLine(std::string(notice.status.message())).c_str());
}

ClientOptions MakeClientOptions(const ClientGenerateOptions& options, ConnectionOptions connection) {
  ClientOptions client;
  client.connection = std::move(connection);
  client.model = options.model;
  client.service_class = options.service_class;
  client.tenant = options.tenant;
  client.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(options.timeout_seconds)));
  client.max_retries = options.retries;
  client.on_retry = [max_retries = options.retries](const RetryNotice& notice) { TellRetry(notice, max_retries); };
  return client;
}

Outcome ClientGenerate(const ClientGenerateOptions& options, Output& out) {
  absl::StatusOr<ConnectionOptions> connection = MakeConnection(options.connection);
  if (!connection.ok()) return FromStatus(connection.status());
  absl::StatusOr<GenerateSpec> spec = MakeSpec(options.request, options.limits);
  if (!spec.ok()) return FromStatus(spec.status());
  if (const absl::Status status = ReadPrompt(options.prompt, &*spec); !status.ok()) return FromStatus(status);
  spec->request_id = options.request_id;
  spec->output.return_token_ids = options.json;

  SignalWatcher signals;
  std::stop_source stop;
  int stopped_by = 0;
  signals.SetHandler([&](int signal) {
    stopped_by = signal;
    stop.request_stop();
  });
  GenerateClient client(MakeClientOptions(options, *std::move(connection)));
  Answer answer(spec->sampling.n);
  // One text comes as it is made; several would get mixed up.
  const bool shows_deltas = !options.json && spec->sampling.n == 1;
  const auto on_event = [&](const StreamEvent& event) {
    const auto* delta = std::get_if<TokenDelta>(&event);
    if (shows_deltas && delta != nullptr && !delta->text.empty() && !(out.Write(delta->text) && out.Flush())) {
      stop.request_stop();
    }
    answer.Add(event);
  };
  const absl::Status status = client.GenerateStream(*spec, on_event, stop.get_token());
  signals.SetHandler(nullptr);

  if (out.closed()) return {};
  // A call that was given up gets no figures: the server counts them, gRPC does not carry them.
  if (stop.stop_requested() && !answer.completed) answer.failure.emplace().reason = RefusalReason::kCancelledByClient;
  const bool failed = !status.ok() && !answer.failure;
  const bool has_text = std::ranges::any_of(answer.choices, [](const ChoiceAnswer& c) { return !c.text.empty(); });
  if (!options.json && (has_text || !failed)) {
    const std::string texts = ShownTexts(answer);
    out.Write(shows_deltas ? std::string_view(texts).substr(answer.only().text.size()) : texts);
    out.Flush();
  }
  if (failed) return CallFault(status, options);
  if (options.json) {
    out.WriteJson(AnswerJson(answer, *spec));
  } else {
    std::fprintf(stderr, "%s\n", answer.completed ? FiguresLine(answer).c_str() : "cancelled");
  }
  return {stopped_by == 0 ? kExitOk : 128 + stopped_by, ""};
}

}  // namespace

void AddClientCommand(CLI::App* root, Invocation* invocation) {
  CLI::App* client = root->add_subcommand("client", "Talk to a running server");
  client->footer(
      "Example:\n"
      "  berth client generate --prompt 'The capital of France is' --max-tokens 16");
  AddClientHealthCommand(client, invocation);

  auto options = std::make_shared<ClientGenerateOptions>();
  CLI::App* app = client->add_subcommand("generate", "Continue a prompt, on a server");
  AddConnectionFlags(app, &options->connection);
  AddText(app, "--model", &options->model, "NAME", "the model's served name; default: whatever is served")
      ->group("Server");
  AddText(app, "--class", &options->service_class, "NAME",
          "the service class; default: the server's (interactive: now or not at all; batch: may wait and pause)")
      ->group("Server");
  AddText(app, "--tenant", &options->tenant, "NAME",
          "whom the request is counted for; default: whom the credentials stand for")
      ->group("Server");
  AddText(app, "--request-id", &options->request_id, "ID", "a name for the request; default: the server makes one")
      ->group("Server");
  AddFloat(app, "--timeout", &options->timeout_seconds, 0.0F, 1e6F, true,
           "seconds the whole call may take, with all its attempts; default: no limit")
      ->group("Server");
  AddInt(
      app, "--retries", &options->retries, 0, 100,
      "how often to try again where that can help and nothing of the answer has come, when the server says; default " +
          std::to_string(kDefaultRetries))
      ->group("Server");
  AddPromptFlags(app, &options->prompt);
  AddRequestFlags(app, &options->request, options->limits);
  AddJson(
      app, &options->json,
      "one object when done: request_id, output_ids, text, finish_reason, logprobs, usage, timing; with -n, choices");
  app->footer(
      "The text goes to standard output as it comes, a line of figures to standard error. With -n above 1 the texts "
      "come\n"
      "when all are done, each behind a line with its number.\n"
      "Ctrl-C gives the request up, keeps what came and exits with 130.\n"
      "A request that is refused for now is sent again after the time that the server names, within --timeout; each "
      "time\n"
      "a line on standard error says why.\n\n"
      "Example:\n"
      "  berth client generate --server 127.0.0.1:8433 --prompt 'The capital of France is' --max-tokens 16");
  app->callback([=] { invocation->run = [=](Output& out) { return ClientGenerate(*options, out); }; });
}

}  // namespace berth::cli
