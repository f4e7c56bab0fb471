#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/jsonl.h"
#include "cli/runtime.h"

namespace berth::cli {
namespace {

struct ScoreOptions {
  ServerConfig config = LocalConfig(1);
  ConfigFlags flags;
  std::optional<std::string> text;
  std::optional<std::string> ids;
  bool parse_special = false;
  bool jsonl = false;
  bool json = false;
  std::int32_t top = 0;
};

// Sums over tokens, of one text or of all.
struct Tally {
  std::int64_t tokens = 0;
  double logprob = 0.0;

  void Add(const Tally& other) {
    tokens += other.tokens;
    logprob += other.logprob;
  }
  double Mean() const { return logprob / static_cast<double>(tokens); }
  double Perplexity() const { return std::exp(-Mean()); }
  std::string Line() const {
    if (tokens == 0) return "no token was scored: the first of a text has nothing before it";
    return "perplexity " + Fixed(Perplexity(), 4) + " over " + GroupDigits(tokens) + " tokens (mean log-probability " +
           Fixed(Mean(), 4) + ")";
  }
};

struct Scored {
  std::vector<TokenId> ids;
  std::vector<TokenLogprob> logprobs;  // of ids[1..]
  Tally tally;
};

class Scorer {
 public:
  Scorer(Runtime* runtime, std::int32_t top) : runtime_(runtime), top_(top) {}

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool parse_special) const {
    return runtime_->tokenizer->Encode(text, {.parse_special = parse_special, .add_bos = true});
  }

  // The engine reports the prompt's log-probabilities; the one token it has to generate is dropped.
  std::variant<Scored, Outcome> Score(std::vector<TokenId> ids) {
    if (ids.empty()) return UsageError("there is no token to score");
    if (const absl::Status status = CheckTokenIds(ids, runtime_->tokenizer->vocab_size()); !status.ok()) {
      return FromStatus(status);
    }
    TokenizedRequest request;
    request.prompt = ids;
    request.spec.request_id = "score";
    request.spec.prompt_is_ids = true;
    request.spec.arrival = runtime_->clock.Now();
    request.spec.sampling.temperature = 0.0F;
    request.spec.stopping.max_output_tokens = 1;
    request.spec.output.prompt_logprobs = top_;
    std::variant<Answer, Refusal> result =
        RunInEngine(*runtime_->engine, std::move(request), [](const TokenDelta&) {}, {});
    if (const auto* refusal = std::get_if<Refusal>(&result)) return FromRefusal(*refusal);
    Answer& answer = std::get<Answer>(result);
    if (answer.failure) return FromRefusal(*answer.failure);

    Scored scored{std::move(ids), std::move(answer.prompt_logprobs), {}};
    for (const TokenLogprob& token : scored.logprobs) scored.tally.logprob += static_cast<double>(token.logprob);
    scored.tally.tokens = static_cast<std::int64_t>(scored.logprobs.size());
    return scored;
  }

  std::string Piece(TokenId id) const { return TokenText(*runtime_->tokenizer, id); }

  Json ToJson(const Scored& scored) const {
    Json json = {{"ids", scored.ids},
                 {"logprobs", LogprobsJson(scored.logprobs, [this](TokenId id) { return Piece(id); })},
                 {"tokens", scored.tally.tokens},
                 {"mean_logprob", nullptr},
                 {"perplexity", nullptr}};
    if (scored.tally.tokens > 0) {
      json["mean_logprob"] = scored.tally.Mean();
      json["perplexity"] = scored.tally.Perplexity();
    }
    return json;
  }

 private:
  Runtime* runtime_;
  std::int32_t top_;
};

void WriteTable(const Scored& scored, const Scorer& scorer, Output& out) {
  std::array<char, 96> cells{};
  std::snprintf(cells.data(), cells.size(), "%8s %8s %10s  %s", "position", "id", "logprob", "token");
  out.WriteLine(cells.data());
  for (std::size_t i = 0; i < scored.logprobs.size(); ++i) {
    const TokenLogprob& token = scored.logprobs[i];
    std::snprintf(cells.data(), cells.size(), "%8zu %8d %10.4f  ", i + 1, token.token_id,
                  static_cast<double>(token.logprob));
    std::string line = cells.data() + Quoted(scorer.Piece(token.token_id));
    for (const TopLogprob& likely : token.top) {
      line += "  " + std::to_string(likely.token_id) + ":" + Fixed(static_cast<double>(likely.logprob), 3);
    }
    out.WriteLine(line);
  }
}

// {"text": ...} or {"ids": [...]}.
absl::StatusOr<std::vector<TokenId>> LineIds(const Scorer& scorer, bool parse_special, const nlohmann::json& object) {
  const bool has_text = object.contains("text");
  if (has_text == object.contains("ids")) return absl::InvalidArgumentError("give one of \"text\" and \"ids\"");
  if (!has_text) return IdsMember(object, "ids");
  const absl::StatusOr<std::string> text = TextMember(object);
  if (!text.ok()) return text.status();
  return scorer.Encode(*text, parse_special);
}

Outcome ScoreLines(const ScoreOptions& options, Scorer* scorer, Output& out) {
  Tally total;
  Outcome outcome = AnswerJsonLines(out, [&](const nlohmann::json& object) -> std::variant<Json, Outcome> {
    absl::StatusOr<std::vector<TokenId>> ids = LineIds(*scorer, options.parse_special, object);
    if (!ids.ok()) return FromStatus(ids.status());
    std::variant<Scored, Outcome> result = scorer->Score(*std::move(ids));
    if (auto* fault = std::get_if<Outcome>(&result)) return std::move(*fault);
    const Scored& scored = std::get<Scored>(result);
    total.Add(scored.tally);
    return scorer->ToJson(scored);
  });
  if (outcome.ok() && !out.closed()) std::fprintf(stderr, "%s\n", total.Line().c_str());
  return outcome;
}

absl::StatusOr<std::vector<TokenId>> OneTextsIds(const ScoreOptions& options, const Scorer& scorer) {
  if (options.ids) return ParseTokenIds(*options.ids);
  if (options.text) return scorer.Encode(*options.text, options.parse_special);
  const absl::StatusOr<std::string> text = ReadAll(stdin, "standard input");
  if (!text.ok()) return text.status();
  return scorer.Encode(*text, options.parse_special);
}

Outcome Score(const ScoreOptions& options, Output& out) {
  if (static_cast<int>(options.jsonl) + static_cast<int>(options.text.has_value()) +
          static_cast<int>(options.ids.has_value()) >
      1) {
    return UsageError("give only one of --text, --ids and --jsonl");
  }
  ServerConfig config = options.config;
  options.flags.Apply(&config);
  Diagnostics findings("");  // a command of one's own has no classes to be warned of
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = StartRuntime(config, &findings);
  if (!runtime.ok()) return FromStatus(runtime.status());
  Scorer scorer(runtime->get(), options.top);
  if (options.jsonl) return ScoreLines(options, &scorer, out);

  absl::StatusOr<std::vector<TokenId>> ids = OneTextsIds(options, scorer);
  if (!ids.ok()) return FromStatus(ids.status());
  std::variant<Scored, Outcome> result = scorer.Score(*std::move(ids));
  if (auto* fault = std::get_if<Outcome>(&result)) return std::move(*fault);
  const Scored& scored = std::get<Scored>(result);
  if (options.json) {
    out.WriteJson(scorer.ToJson(scored));
  } else {
    WriteTable(scored, scorer, out);
    out.WriteLine(scored.tally.Line());
  }
  return {};
}

}  // namespace

void AddScoreCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* app = root->add_subcommand("score", "Log-probability of every token of a text, and its perplexity");
  const char* group = "Input";
  app->add_option("--text", options->text, "the text; default: all of standard input, as it is")
      ->option_text("TEXT")
      ->group(group);
  app->add_option("--ids", options->ids, "token ids instead, used as they are")->option_text("1,2,3")->group(group);
  app->add_flag("--jsonl", options->jsonl,
                "standard input is one object a line, {\"text\": ...} or {\"ids\": [...]}; the output is one a line")
      ->group(group);
  app->add_flag("--parse-special", options->parse_special, "special tokens spelled out in a text become those tokens")
      ->group(group);
  AddInt(app, "--top", &options->top, 0, options->config.request.max_logprobs, "show the N most likely tokens as well")
      ->group("Output");
  AddJson(app, &options->json, "one object: ids, logprobs (of the second token on), tokens, mean_logprob, perplexity");
  AddEngineFlags(app, &options->flags, options->config);
  app->footer(
      "A text is encoded as generate encodes a prompt, with begin-of-text where the model wants one. Its first token "
      "has\n"
      "nothing before it and no score. With --jsonl the perplexity of all lines together goes to standard error.\n\n"
      "Example:\n"
      "  berth score --text 'The capital of France is Paris.'\n"
      "  berth score --jsonl <texts.jsonl >scores.jsonl");
  app->callback([=] { invocation->run = [=](Output& out) { return Score(*options, out); }; });
}

}  // namespace berth::cli
