#include "engine/output_stream.h"

#include <algorithm>
#include <iterator>

namespace berth {
namespace {

std::vector<TokenId> StopTokens(const Tokenizer& tokenizer, const StoppingSpec& stopping) {
  std::vector<TokenId> ids = stopping.stop_token_ids;
  if (!stopping.ignore_eos) ids.insert(ids.end(), tokenizer.eos().begin(), tokenizer.eos().end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Finished StopStringEnd(std::string matched) {
  return {.index = 0, .reason = FinishReason::kStopString, .stop_match = std::move(matched)};
}

}  // namespace

OutputStream::OutputStream(const Tokenizer* tokenizer, const GenerateSpec* spec, std::span<const TokenId> prompt,
                           std::int32_t max_output_tokens, std::span<const TokenId> never_drawn)
    : tokenizer_(tokenizer),
      stopping_(&spec->stopping),
      max_output_tokens_(max_output_tokens),
      never_drawn_(never_drawn),
      stop_tokens_(StopTokens(*tokenizer, spec->stopping)),
      decoder_(tokenizer, /*at_text_start=*/true),
      matcher_(spec->stopping.stop_strings, spec->stopping.include_stop_text) {
  for (const TokenId id : prompt) {
    std::string text = decoder_.Append(id);
    if (spec->output.echo_prompt) prompt_text_ += text;
  }
  if (stopping_->min_output_tokens > 0) {
    std::ranges::set_union(never_drawn_, stop_tokens_, std::back_inserter(early_banned_));
  }
}

std::span<const TokenId> OutputStream::banned() const {
  return may_stop() ? never_drawn_ : std::span<const TokenId>(early_banned_);
}

std::optional<Finished> OutputStream::Append(TokenId token, TokenDelta* delta) {
  const bool match = may_stop();
  ++output_tokens_;
  if (match && std::ranges::binary_search(stop_tokens_, token)) {
    // Ordinary text can be made a stop token as well; it may belong to a character or a stop string that is held back.
    const bool has_text = !tokenizer_->Piece(token).empty();
    std::optional<std::string> matched;
    if (stopping_->include_stop_text && has_text) matched = AddText(decoder_.Append(token), match, &delta->text);
    if (!matched.has_value()) matched = Flush(match, &delta->text);
    if (matched.has_value()) return StopStringEnd(*std::move(matched));
    if (stopping_->include_stop_text && !has_text) delta->text += tokenizer_->Spelling(token);
    return Finished{.index = 0, .reason = FinishReason::kStopToken, .stop_match = token};
  }
  if (auto matched = AddText(decoder_.Append(token), match, &delta->text)) return StopStringEnd(*std::move(matched));
  if (output_tokens_ < max_output_tokens_) return std::nullopt;
  if (auto matched = Flush(match, &delta->text)) return StopStringEnd(*std::move(matched));
  return Finished{.index = 0, .reason = FinishReason::kLength, .stop_match = {}};
}

Finished OutputStream::EndAtDeadline(TokenDelta* delta) {
  if (auto matched = Flush(may_stop(), &delta->text)) return StopStringEnd(*std::move(matched));
  return {.index = 0, .reason = FinishReason::kDeadline, .stop_match = {}};
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
