#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/jsonl.h"
#include "cli/runtime.h"

namespace berth::cli {
namespace {

struct DetokenizeOptions {
  ServerConfig config;
  std::optional<std::string> ids;
  bool jsonl = false;
  bool json = false;
};

absl::StatusOr<std::string> Decode(const Tokenizer& tokenizer, const absl::StatusOr<std::vector<TokenId>>& ids) {
  if (!ids.ok()) return ids.status();
  if (const absl::Status status = CheckTokenIds(*ids, tokenizer.vocab_size()); !status.ok()) return status;
  return tokenizer.Decode(*ids);
}

Outcome Detokenize(const DetokenizeOptions& options, Output& out) {
  if (options.jsonl && options.ids) return UsageError("give only one of --ids and --jsonl");
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizer(options.config.model);
  if (!tokenizer.ok()) return FromStatus(tokenizer.status());

  if (options.jsonl) {
    return AnswerJsonLines(out, [&](const nlohmann::json& object) -> std::variant<Json, Outcome> {
      const absl::StatusOr<std::string> text = Decode(**tokenizer, IdsMember(object, "ids"));
      if (!text.ok()) return FromStatus(text.status());
      return Json{{"text", *text}};
    });
  }

  const absl::StatusOr<std::string> input =
      options.ids ? absl::StatusOr<std::string>(*options.ids) : ReadAll(stdin, "standard input");
  if (!input.ok()) return FromStatus(input.status());
  const absl::StatusOr<std::string> text = Decode(**tokenizer, ParseTokenIds(*input));
  if (!text.ok()) return FromStatus(text.status());
  if (options.json) {
    out.WriteJson({{"text", *text}});
  } else {
    out.WriteLine(*text);
  }
  return {};
}

}  // namespace

void AddDetokenizeCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<DetokenizeOptions>();
  CLI::App* app = root->add_subcommand("detokenize", "Token ids to text");
  AddModelFlag(app, &options->config.model.path);
  app->add_option("--ids", options->ids, "the ids, separated by commas or blanks; default: all of standard input")
      ->option_text("1,2,3")
      ->group("Input");
  app->add_flag("--jsonl", options->jsonl,
                "standard input is one object a line, {\"ids\": [...]}; so is the output, {\"text\": ...}")
      ->group("Input");
  AddJson(app, &options->json, "one object: text");
  app->footer(
      "Control tokens (begin of text, end of turn) have no text; bytes that are no UTF-8 become U+FFFD.\n\n"
      "Example:\n"
      "  berth detokenize --ids 504,3575,282,4649\n"
      "  berth detokenize --jsonl <ids.jsonl >texts.jsonl");
  app->callback([=] { invocation->run = [=](Output& out) { return Detokenize(*options, out); }; });
}

}  // namespace berth::cli
