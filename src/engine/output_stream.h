// One choice's output: what text its tokens make, and when they end it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "berth/event.h"
#include "berth/request.h"
#include "berth/units.h"
#include "engine/end_rule.h"
#include "tokenizer/incremental_decoder.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// The stopping rules, in this order for each token:
// - A stop token (EndRule) ends the choice. Its id is part of the output, its text only with include_stop_text.
// - A stop string ends it as soon as it is complete; the text ends before it, or behind it with include_stop_text. Text
//   that could still become a stop string is held back until it cannot.
// - max_output_tokens ends it.
// The text of the first min_output_tokens tokens takes part in no stop string (vLLM's min_tokens likewise does not look
// for stop strings before it).
// Whatever ends the choice, all text that was held back and is not cut comes out with the end.
class OutputStream {
 public:
  // `tokenizer`, `spec` and `rule` must outlive the stream. The prompt is decoded here, once: so the output begins the
  // text only if the prompt has none, and a character that the prompt left unfinished is finished.
  OutputStream(const Tokenizer* tokenizer, const GenerateSpec* spec, std::span<const TokenId> prompt,
               const EndRule* rule);

  // The prompt's text: what echo_prompt shows before the output.
  const std::string& prompt_text() const { return prompt_text_; }
  std::int64_t output_tokens() const { return output_tokens_; }

  // Takes the next token; adds its text to delta->text. Returns the end if this token ended the choice, after which
  // nothing may be appended.
  std::optional<Finished> Append(TokenId token, TokenDelta* delta);

  // Ends the choice before its next token; what was held back is added to delta->text.
  Finished EndAtDeadline(TokenDelta* delta);

 private:
  // What was held back goes to `text`; returns the stop string if that completes one.
  std::optional<std::string> Flush(bool match, std::string* text);
  // Adds decoded text; returns the stop string if it completes one.
  std::optional<std::string> AddText(const std::string& decoded, bool match, std::string* text);

  const Tokenizer* tokenizer_;
  const EndRule* rule_;
  bool include_stop_text_;
  IncrementalDecoder decoder_;
  StopMatcher matcher_;
  std::string prompt_text_;
  std::int64_t output_tokens_ = 0;
};

}  // namespace berth
