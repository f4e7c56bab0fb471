// A tokenizer's data as plain values, whatever file they came from, and the tokenizer made of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/units.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// Values as in GGUF's tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,      // adds no text; found in text only as special tokens are
  kControl = 3,      // adds no text; found in text only with parse_special
  kUserDefined = 4,  // always found in text, before anything merges
  kUnused = 5,
  kByte = 6,  // SentencePiece's "<0x0A>"
};

enum class VocabularyModel : std::uint8_t {
  kByteLevelBpe,   // spelled in GPT-2's byte alphabet, merges by rank
  kSentencePiece,  // spelled with U+2581 for space, merges by score, falls back to bytes
};

struct Vocabulary {
  VocabularyModel model = VocabularyModel::kByteLevelBpe;
  std::string description;
  std::vector<std::string> tokens;  // spellings, by id
  std::vector<TokenType> types;     // one per token
  TokenId bos = kNoToken;
  std::vector<TokenId> eos;  // any order, repeats allowed
  bool add_bos = false;
  // Phi-3: tokens found in text swallow the white space after them, all but <s>, <unk> and <|endoftext|>.
  bool specials_strip_right = false;

  // kByteLevelBpe
  PreTokenizerKind pre_tokenizer = PreTokenizerKind::kGpt2;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  bool ignore_merges = false;                               // a word that is a token is that token
  bool normalize_nfc = false;

  // kSentencePiece
  std::vector<float> scores;  // one per token, finite
  bool add_space_prefix = true;
};

// Refuses what no text could be encoded with: no tokens, a token that is not UTF-8, a missing byte token.
// REQUIRES: types (and scores, for kSentencePiece) as long as tokens; ids in range.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(Vocabulary vocabulary);

}  // namespace berth
