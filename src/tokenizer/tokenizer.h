// Text to token ids and back, for the vocabularies that GGUF files carry: byte-level BPE and SentencePiece BPE.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/units.h"
#include "model/gguf.h"

namespace berth {

struct EncodeOptions {
  // Special tokens spelled out in the text ("<|im_end|>") become those tokens. Off for anything a user typed.
  bool parse_special = false;
  // Put the begin-of-text token in front where the model wants one (never doubled).
  bool add_bos = true;
};

// Immutable after creation; thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Refuses an unknown model or pre-tokenizer by name. Copies what it needs: `file` may go.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file);

  // Invalid UTF-8 in `text` is an InvalidArgument naming the byte offset, more than 512 MiB of it one naming the size.
  // n log n in the text's length for any input. A byte for which a byte-level vocabulary has no token adds none, as in
  // the reference tokenizers (SmolLM2 lacks a few control characters).
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const = 0;

  // The bytes a token adds to the text. Control tokens (begin, end, ...) add none: their spelling is Spelling().
  // REQUIRES: 0 ≤ id < vocab_size(). A leading space that SentencePiece adds at the very start of a text is the
  // decoder's to strip, not Piece's.
  virtual std::string_view Piece(TokenId id) const = 0;
  virtual std::string_view Spelling(TokenId id) const = 0;

  virtual std::int32_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;  // kNoToken where there is none
  // Every token that ends a text (end of text, end of turn), sorted.
  virtual std::span<const TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  // Whether the first space of a decoded text was put there by Encode (SentencePiece with a space prefix).
  virtual bool strips_leading_space() const = 0;
  // The most bytes of text that one token stands for, the spelling of special tokens and what normal form C takes away
  // included: text of n bytes has at least ⌈n / longest_piece_bytes()⌉ tokens. Not counted are bytes without a token
  // and, with parse_special, the white space that Phi-3's special tokens swallow.
  virtual std::int32_t longest_piece_bytes() const = 0;
  // "gpt2/smollm", "llama (SentencePiece)"
  virtual std::string description() const = 0;

  // The text of a whole id list, as IncrementalDecoder gives it.
  std::string Decode(std::span<const TokenId> ids) const;
};

}  // namespace berth
