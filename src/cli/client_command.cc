#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/request_flags.h"
#include "client/client.h"
#include "config/server_config.h"

namespace berth::cli {
namespace {

struct ClientGenerateOptions {
  RequestFlags request;
  RequestSettings limits;
  std::string server = ListenSettings().grpc;
  std::string model;
  std::string request_id;
  float timeout_seconds = 0.0F;
  bool json = false;
};

Json AnswerJson(const Answer& answer, const GenerateSpec& spec) {
  Json json = {{"request_id", answer.admitted ? answer.admitted->request_id : ""},
               {"output_ids", answer.output_ids},
               {"text", answer.text},
               {"finish_reason", answer.FinishName()},
               {"stop_match", answer.finished ? StopMatchJson(*answer.finished) : Json(nullptr)},
               {"seed", answer.admitted ? answer.admitted->seed : spec.sampling.seed}};
  if (spec.output.logprobs != kNoLogprobs) json["logprobs"] = LogprobsJson(answer.logprobs, nullptr);
  if (spec.output.prompt_logprobs != kNoLogprobs)
    json["prompt_logprobs"] = LogprobsJson(answer.prompt_logprobs, nullptr);
  json["usage"] = UsageJson(answer.usage);
  json["timing"] = TimingJson(answer.usage);
  return json;
}

Outcome ClientGenerate(const ClientGenerateOptions& options, Output& out) {
  absl::StatusOr<GenerateSpec> spec = MakeSpec(options.request, options.limits);
  if (!spec.ok()) return FromStatus(spec.status());
  spec->request_id = options.request_id;
  spec->output.return_token_ids = options.json;

  ClientOptions client_options;
  client_options.address = options.server;
  client_options.model = options.model;
  client_options.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(options.timeout_seconds)));
  GenerateClient client(client_options);
  Answer answer;
  const absl::Status status = client.GenerateStream(*spec, [&](const StreamEvent& event) {
    const std::string_view text = answer.Add(event);
    if (!options.json && !text.empty() && out.Write(text)) out.Flush();
  });
  const bool unfinished_line = !options.json && !answer.text.empty() && answer.text.back() != '\n';
  if (unfinished_line) out.Write("\n");
  out.Flush();
  // Whatever the server says no to is a fault of this run: the command line itself was well-formed.
  if (!status.ok()) return Fault(std::string(status.message()));
  if (out.closed()) return {};
  if (options.json) {
    out.WriteJson(AnswerJson(answer, *spec));
  } else {
    std::fprintf(stderr, "%s\n", FiguresLine(answer).c_str());
  }
  return {};
}

}  // namespace

void AddClientCommand(CLI::App* root, Invocation* invocation) {
  CLI::App* client = root->add_subcommand("client", "Talk to a running server");
  client->footer(
      "Example:\n"
      "  berth client generate --prompt 'The capital of France is' --max-tokens 16");

  auto options = std::make_shared<ClientGenerateOptions>();
  CLI::App* app = client->add_subcommand("generate", "Continue a prompt, on a server");
  AddText(app, "--server", &options->server, "HOST:PORT", "the server's gRPC address; default " + options->server)
      ->group("Server");
  AddText(app, "--model", &options->model, "NAME", "the model's served name; default: whatever is served")
      ->group("Server");
  AddText(app, "--request-id", &options->request_id, "ID", "a name for the request; default: the server makes one")
      ->group("Server");
  AddFloat(app, "--timeout", &options->timeout_seconds, 0.0F, 1e6F, true,
           "seconds the whole call may take; default: no limit")
      ->group("Server");
  AddRequestFlags(app, &options->request, options->limits);
  AddJson(app, &options->json,
          "one object when done: request_id, output_ids, text, finish_reason, logprobs, usage, timing");
  app->footer(
      "The text goes to standard output as it comes, a line of figures to standard error.\n\n"
      "Example:\n"
      "  berth client generate --server 127.0.0.1:8433 --prompt 'The capital of France is' --max-tokens 16");
  app->callback([=] { invocation->run = [=](Output& out) { return ClientGenerate(*options, out); }; });
}

}  // namespace berth::cli
