#include "tokenizer/spm.h"

#include <algorithm>
#include <cstdint>
#include <queue>

#include "base/utf8.h"

namespace berth {
namespace {

// "a b" -> "▁a▁b".
std::string SpellSpaces(std::string_view text, bool add_prefix) {
  std::string spelled;
  spelled.reserve(text.size() + text.size() / 2);
  if (add_prefix) spelled += kSpaceSpelling;
  for (const char c : text) {
    if (c == ' ') {
      spelled += kSpaceSpelling;
    } else {
      spelled += c;
    }
  }
  return spelled;
}

}  // namespace

int ByteOfSpelling(std::string_view spelling) {
  if (spelling.size() != 6 || spelling.substr(0, 3) != "<0x" || spelling[5] != '>') return -1;
  int byte = 0;
  for (const char c : spelling.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      byte = byte * 16 + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      byte = byte * 16 + (c - 'A' + 10);
    } else {
      return -1;
    }
  }
  return byte;
}

SentencePieceBpe::SentencePieceBpe(const Vocabulary& vocabulary, std::span<const std::string> spellings)
    : add_space_prefix_(vocabulary.add_space_prefix), scores_(vocabulary.scores) {
  byte_tokens_.fill(kNoToken);
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = vocabulary.types[i];
    if (type == TokenType::kByte) {
      TokenId& token = byte_tokens_[ByteOfSpelling(spellings[i])];
      if (token == kNoToken) token = id;
    } else if (type == TokenType::kNormal || type == TokenType::kUserDefined) {
      // Control, unknown, unused and byte tokens never come from the letters of a text.
      pieces_.emplace(spellings[i], id);
      longest_piece_bytes_ = std::max(longest_piece_bytes_, spellings[i].size());
    }
  }
}

// One text in the making.
struct SentencePieceBpe::Merger {
  // Part of the text; a linked list in an array.
  struct Symbol {
    TokenId id;             // kNoToken: a character that is no token
    std::uint32_t begin;    // in the text
    std::uint32_t bytes;    // 0: merged away
    std::int32_t previous;  // -1 at the beginning
    std::int32_t next;      // -1 at the end
  };

  struct Pair {
    float score;
    std::int32_t left;
    std::uint32_t bytes;  // of both: tells whether the pair is still as it was queued
    TokenId id;

    // The highest score first, the leftmost of equals.
    bool operator<(const Pair& other) const { return score != other.score ? score < other.score : left > other.left; }
  };

  const SentencePieceBpe& model;
  std::string_view text;
  std::vector<Symbol> symbols = {};
  std::priority_queue<Pair> pairs = {};

  void Split() {
    symbols.reserve(text.size());
    for (std::size_t begin = 0; begin < text.size();) {
      const auto bytes = static_cast<std::size_t>(ReadUtf8(text.substr(begin)).bytes);
      const auto i = static_cast<std::int32_t>(symbols.size());
      symbols.push_back({FindToken(model.pieces_, text.substr(begin, bytes)), static_cast<std::uint32_t>(begin),
                         static_cast<std::uint32_t>(bytes), i - 1, i + 1});
      begin += bytes;
    }
    symbols.back().next = -1;
  }

  // Queues the pair that begins at symbol `left` (none for -1) if it is a token.
  void QueuePair(std::int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const std::uint32_t bytes = symbols[left].bytes + symbols[symbols[left].next].bytes;
    if (bytes > model.longest_piece_bytes_) return;
    const TokenId id = FindToken(model.pieces_, text.substr(symbols[left].begin, bytes));
    if (id != kNoToken) pairs.push({model.scores_[id], left, bytes, id});
  }

  void Merge() {
    for (std::size_t i = 0; i < symbols.size(); ++i) QueuePair(static_cast<std::int32_t>(i));
    while (!pairs.empty()) {
      const Pair pair = pairs.top();
      pairs.pop();
      Symbol& left = symbols[pair.left];
      if (left.bytes == 0 || left.next < 0) continue;
      Symbol& right = symbols[left.next];
      if (left.bytes + right.bytes != pair.bytes) continue;
      left.id = pair.id;
      left.bytes = pair.bytes;
      left.next = right.next;
      right.bytes = 0;
      if (left.next >= 0) symbols[left.next].previous = pair.left;
      QueuePair(left.previous);
      QueuePair(pair.left);
    }
  }
};

void SentencePieceBpe::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  const std::string spelled = SpellSpaces(text, add_space_prefix_);
  Merger merger{*this, spelled};
  merger.Split();
  merger.Merge();
  for (std::int32_t i = 0; i >= 0; i = merger.symbols[i].next) {
    const Merger::Symbol& symbol = merger.symbols[i];
    if (symbol.id != kNoToken) {
      ids->push_back(symbol.id);
    } else {
      for (const char c : std::string_view(spelled).substr(symbol.begin, symbol.bytes)) {
        ids->push_back(byte_tokens_[static_cast<unsigned char>(c)]);
      }
    }
  }
}

}  // namespace berth
