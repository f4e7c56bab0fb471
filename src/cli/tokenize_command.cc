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

struct TokenizeOptions {
  ServerConfig config;
  std::optional<std::string> text;
  bool jsonl = false;
  bool json = false;
  EncodeOptions encode{.parse_special = false, .add_bos = false};
};

std::string IdLine(const std::vector<TokenId>& ids) {
  std::string line;
  for (const TokenId id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return line;
}

absl::StatusOr<std::vector<TokenId>> EncodeLine(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                                const nlohmann::json& object) {
  const absl::StatusOr<std::string> text = TextMember(object);
  if (!text.ok()) return text.status();
  const absl::StatusOr<bool> parse_special = BoolMember(object, "parse_special", options.encode.parse_special);
  if (!parse_special.ok()) return parse_special.status();
  return tokenizer.Encode(*text, {.parse_special = *parse_special, .add_bos = options.encode.add_bos});
}

Outcome Tokenize(const TokenizeOptions& options, Output& out) {
  if (options.jsonl && options.text) return UsageError("give only one of --text and --jsonl");
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizer(options.config.model);
  if (!tokenizer.ok()) return FromStatus(tokenizer.status());

  if (options.jsonl) {
    return AnswerJsonLines(out, [&](const nlohmann::json& object) -> std::variant<Json, Outcome> {
      const absl::StatusOr<std::vector<TokenId>> ids = EncodeLine(**tokenizer, options, object);
      if (!ids.ok()) return FromStatus(ids.status());
      return Json{{"ids", *ids}};
    });
  }

  const absl::StatusOr<std::string> text =
      options.text ? absl::StatusOr<std::string>(*options.text) : ReadAll(stdin, "standard input");
  if (!text.ok()) return FromStatus(text.status());
  const absl::StatusOr<std::vector<TokenId>> ids = (*tokenizer)->Encode(*text, options.encode);
  if (!ids.ok()) return FromStatus(ids.status());
  if (options.json) {
    out.WriteJson({{"ids", *ids}, {"count", ids->size()}});
  } else {
    out.WriteLine(IdLine(*ids));
  }
  return {};
}

}  // namespace

void AddTokenizeCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* app = root->add_subcommand("tokenize", "Text to token ids");
  AddModelFlag(app, &options->config.model.path);
  app->add_option("--text", options->text, "the text; default: all of standard input, as it is")
      ->option_text("TEXT")
      ->group("Input");
  app->add_flag("--jsonl", options->jsonl,
                "standard input is one object a line, {\"text\": ..., \"parse_special\": false}; so is the output, "
                "{\"ids\": [...]}")
      ->group("Input");
  app->add_flag("--parse-special", options->encode.parse_special,
                "special tokens spelled out in the text become those tokens")
      ->group("Tokenizer");
  app->add_flag("--add-bos,!--no-bos", options->encode.add_bos,
                "put the begin-of-text token in front where the model wants one, as generate does; left out by default")
      ->group("Tokenizer");
  AddJson(app, &options->json, "one object: ids, count");
  app->footer(
      "Example:\n"
      "  berth tokenize --text 'Hello world'\n"
      "  berth tokenize --jsonl <texts.jsonl >ids.jsonl");
  app->callback([=] { invocation->run = [=](Output& out) { return Tokenize(*options, out); }; });
}

}  // namespace berth::cli
