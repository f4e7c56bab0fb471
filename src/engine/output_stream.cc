#include "engine/output_stream.h"

namespace berth {
namespace {

Finished StopStringEnd(std::int32_t index, std::string matched) {
  return {.index = index, .reason = FinishReason::kStopString, .stop_match = std::move(matched)};
}

}  // namespace

OutputStream::OutputStream(const Tokenizer* tokenizer, const GenerateSpec* spec, std::span<const TokenId> prompt,
                           const EndRule* rule)
    : tokenizer_(tokenizer),
      rule_(rule),
      include_stop_text_(spec->stopping.include_stop_text),
      decoder_(tokenizer, /*at_text_start=*/true),
      matcher_(spec->stopping.stop_strings, spec->stopping.include_stop_text) {
  for (const TokenId id : prompt) {
    const std::string text = decoder_.Append(id);
    if (spec->output.echo_prompt) prompt_text_ += text;
  }
}

std::optional<Finished> OutputStream::Append(TokenId token, TokenDelta* delta) {
  const bool match = rule_->MayStop(output_tokens_);
  ++output_tokens_;
  const std::optional<FinishReason> end = rule_->After(token, output_tokens_);
  if (end == FinishReason::kStopToken) {
    // Ordinary text can be made a stop token as well; it may belong to a character or a stop string that is held back.
    const bool has_text = !tokenizer_->Piece(token).empty();
    std::optional<std::string> matched;
    if (include_stop_text_ && has_text) matched = AddText(decoder_.Append(token), match, &delta->text);
    if (!matched.has_value()) matched = Flush(match, &delta->text);
    if (matched.has_value()) return StopStringEnd(delta->index, *std::move(matched));
    if (include_stop_text_ && !has_text) delta->text += tokenizer_->Spelling(token);
    return Finished{.index = delta->index, .reason = FinishReason::kStopToken, .stop_match = token};
  }
  if (auto matched = AddText(decoder_.Append(token), match, &delta->text)) {
    return StopStringEnd(delta->index, *std::move(matched));
  }
  if (!end.has_value()) return std::nullopt;
  if (auto matched = Flush(match, &delta->text)) return StopStringEnd(delta->index, *std::move(matched));
  return Finished{.index = delta->index, .reason = FinishReason::kLength, .stop_match = {}};
}

Finished OutputStream::EndAtDeadline(TokenDelta* delta) {
  if (auto matched = Flush(rule_->MayStop(output_tokens_), &delta->text)) {
    return StopStringEnd(delta->index, *std::move(matched));
  }
  return {.index = delta->index, .reason = FinishReason::kDeadline, .stop_match = {}};
}

std::optional<std::string> OutputStream::AddText(const std::string& decoded, bool match, std::string* text) {
  if (!match) {
    *text += decoded;
    return std::nullopt;
  }
  StopMatcher::Output output = matcher_.Append(decoded);
  *text += output.text;
  return std::move(output.matched);
}

std::optional<std::string> OutputStream::Flush(bool match, std::string* text) {
  auto matched = AddText(decoder_.Flush(), match, text);
  if (!matched.has_value()) *text += matcher_.Flush();
  return matched;
}

}  // namespace berth
