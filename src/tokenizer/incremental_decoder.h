// Token ids to text as they come, whole characters only.
#pragma once

#include <string>
#include <string_view>

#include "berth/units.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// One sequence's decoder. The text of a list of ids is the concatenation of what Append and Flush return, however the
// list is cut. Bytes that are not UTF-8 become U+FFFD, one per maximal invalid part (Unicode 15, section 3.9, table
// 3-8); an unfinished character is held back (at most 3 bytes) until it is finished, broken, or Flush is called.
class IncrementalDecoder {
 public:
  // `tokenizer` must outlive the decoder. `at_text_start`: the next token begins the text, so SentencePiece's own
  // leading space is stripped from it; false when the text before (a prompt) is already shown.
  IncrementalDecoder(const Tokenizer* tokenizer, bool at_text_start);

  std::string Append(TokenId id);
  // The end: what was held back comes out as U+FFFD.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool at_text_start_;
  std::string held_;  // a valid beginning of one character
};

}  // namespace berth
