#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

namespace berth {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

std::uint64_t PairKey(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Text never becomes a control token by merging, whatever the file's merges say.
bool MayComeFromText(TokenType type) { return type != TokenType::kControl && type != TokenType::kUnknown; }

}  // namespace

struct ByteLevelBpe::Scratch {
  // One part of a word; a linked list in an array.
  struct Symbol {
    TokenId id;
    std::int32_t previous;  // -1 at the beginning
    std::int32_t next;      // -1 at the end
    std::uint32_t rank;  // of the merge with the next symbol; kNoRank where there is none, or the symbol is merged away
    TokenId merged;      // what that merge gives
  };

  std::vector<Symbol> symbols;
  // A heap of rank << 32 | symbol: the best rank first, the leftmost of equals. Entries go stale when a neighbour
  // merges; they are dropped when they come up, because the symbol's rank is no longer theirs.
  std::vector<std::uint64_t> pairs;
};

ByteLevelBpe::ByteLevelBpe(const Vocabulary& vocabulary, std::span<const std::string> pieces)
    : pre_tokenizer_(vocabulary.pre_tokenizer),
      normalize_nfc_(vocabulary.normalize_nfc),
      ignore_merges_(vocabulary.ignore_merges) {
  TokenMap by_spelling;
  by_spelling.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!MayComeFromText(vocabulary.types[id])) continue;
    by_spelling.emplace(vocabulary.tokens[id], static_cast<TokenId>(id));
    if (ignore_merges_) whole_words_.emplace(pieces[id], static_cast<TokenId>(id));
  }

  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    AppendUtf8(SpellByte(static_cast<unsigned char>(byte)), &spelling);
    byte_tokens_[byte] = FindToken(by_spelling, spelling);
  }

  // A merge whose parts or result are no tokens can never be part of an encoding: it is left out, as llama.cpp does, so
  // that files with a cut-down vocabulary load here as they load there.
  merges_.reserve(vocabulary.merges.size());
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    const TokenId left_id = FindToken(by_spelling, left);
    const TokenId right_id = FindToken(by_spelling, right);
    const TokenId result = FindToken(by_spelling, left + right);
    if (left_id == kNoToken || right_id == kNoToken || result == kNoToken) continue;
    merges_.emplace(PairKey(left_id, right_id), Merge{static_cast<std::uint32_t>(rank), result});
  }
}

void ByteLevelBpe::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  std::string storage;
  if (normalize_nfc_) text = NormalizeNfc(text, &storage);
  Scratch scratch;
  PreTokenizer words(pre_tokenizer_, text);
  for (std::string_view word = words.Next(); !word.empty(); word = words.Next()) {
    if (const TokenId id = ignore_merges_ ? FindToken(whole_words_, word) : kNoToken; id != kNoToken) {
      ids->push_back(id);
    } else {
      EncodeWord(word, &scratch, ids);
    }
  }
}

void ByteLevelBpe::EncodeWord(std::string_view word, Scratch* scratch, std::vector<TokenId>* ids) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  std::vector<std::uint64_t>& pairs = scratch->pairs;
  symbols.clear();
  for (const char c : word) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(c)];
    if (id == kNoToken) continue;
    const auto i = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, i - 1, i + 1, kNoRank, kNoToken});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  for (std::size_t i = 0; i < symbols.size(); ++i) QueuePair(static_cast<std::int32_t>(i), scratch);
  while (!pairs.empty()) {
    const std::uint64_t best = pairs.front();
    std::pop_heap(pairs.begin(), pairs.end(), std::greater<>());
    pairs.pop_back();
    const auto i = static_cast<std::int32_t>(best & 0xFFFFFFFF);
    Scratch::Symbol& symbol = symbols[i];
    if (symbol.rank != best >> 32) continue;
    Scratch::Symbol& right = symbols[symbol.next];
    symbol.id = symbol.merged;
    symbol.next = right.next;
    right.rank = kNoRank;
    if (symbol.next >= 0) symbols[symbol.next].previous = i;
    QueuePair(symbol.previous, scratch);
    QueuePair(i, scratch);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

void ByteLevelBpe::QueuePair(std::int32_t i, Scratch* scratch) const {
  if (i < 0) return;
  Scratch::Symbol& symbol = scratch->symbols[i];
  symbol.rank = kNoRank;
  if (symbol.next < 0) return;
  const auto it = merges_.find(PairKey(symbol.id, scratch->symbols[symbol.next].id));
  if (it == merges_.end()) return;
  symbol.rank = it->second.rank;
  symbol.merged = it->second.result;
  scratch->pairs.push_back(std::uint64_t{symbol.rank} << 32 | static_cast<std::uint32_t>(i));
  std::push_heap(scratch->pairs.begin(), scratch->pairs.end(), std::greater<>());
}

}  // namespace berth
