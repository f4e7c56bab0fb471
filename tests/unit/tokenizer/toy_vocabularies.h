// Small vocabularies made of plain values.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace berth::test {

// Ids 0 to 255 are the bytes, spelled in the byte alphabet; then the result of each merge, in order, where it is new.
Vocabulary ToyByteLevel(std::vector<std::pair<std::string, std::string>> merges);

// Ids 0 <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes, then the pieces with their scores. No begin token unless asked for.
Vocabulary ToySentencePiece(const std::vector<std::pair<std::string, float>>& pieces);

// Adds a token at the end and returns its id.
TokenId AddToken(Vocabulary* vocabulary, const std::string& spelling, TokenType type);

// Aborts the test program where the vocabulary is refused.
std::unique_ptr<Tokenizer> MakeTokenizer(Vocabulary vocabulary);

// Without a begin token; aborts the test program where the text is refused.
std::vector<TokenId> Ids(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false);

}  // namespace berth::test
