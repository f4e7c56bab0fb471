// Tokenizers of real files, each loaded once per test program.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace berth::test {

// Aborts the test program where the file is refused.
const Tokenizer& GgufTokenizer(const std::string& path);

// A SentencePiece vocabulary from a tokenizer.json, whose tokens are in the order of their scores: the score of a token
// is minus its id, as in the file that sentencepiece trained.
Vocabulary SentencePieceFromJson(const std::string& path);

}  // namespace berth::test
