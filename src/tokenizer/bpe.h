// Byte-level BPE: words of bytes, merged pair by pair, the best-ranked pair first.
// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); bytes as in GPT-2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/text_model.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocabulary.h"

namespace berth {

class ByteLevelBpe final : public TextModel {
 public:
  // `pieces`: the bytes of each token; must outlive the model.
  ByteLevelBpe(const Vocabulary& vocabulary, std::span<const std::string> pieces);

  // Bytes without a token add no id, as in the reference tokenizers.
  void Encode(std::string_view text, std::vector<TokenId>* ids) const override;

  // kNoToken where the vocabulary has no token for the byte.
  TokenId ByteToken(unsigned char byte) const { return byte_tokens_[byte]; }

 private:
  struct Merge {
    std::uint32_t rank;
    TokenId result;
  };
  // Words in the making, kept from word to word for their memory.
  struct Scratch;

  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<TokenId>* ids) const;
  // Looks up the pair that begins at symbol `i` (none for -1) and queues it if it merges.
  void QueuePair(std::int32_t i, Scratch* scratch) const;

  PreTokenizerKind pre_tokenizer_;
  bool normalize_nfc_;
  bool ignore_merges_;
  std::array<TokenId, 256> byte_tokens_;
  TokenMap whole_words_;                              // by bytes; filled only with ignore_merges
  absl::flat_hash_map<std::uint64_t, Merge> merges_;  // by PairKey(left, right)
};

}  // namespace berth
