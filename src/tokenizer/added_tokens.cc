#include "tokenizer/added_tokens.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace berth {
namespace {

std::uint64_t EdgeKey(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

std::size_t SkipSpaces(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(position));
    if (ClassOf(prefix.code_point) != CharClass::kSpace) break;
    position += static_cast<std::size_t>(prefix.bytes);
  }
  return position;
}

}  // namespace

void AddedTokens::Add(std::string_view spelling, const Token& token) {
  std::uint32_t node = 0;
  for (const char byte : spelling) {
    const auto [edge, is_new] = edges_.try_emplace(EdgeKey(node, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.emplace_back();
    node = edge->second;
  }
  if (nodes_[node].id != kNoToken) return;
  nodes_[node] = token;
  (token.is_special ? begins_special_ : begins_always_)[static_cast<unsigned char>(spelling[0])] = true;
}

std::optional<AddedTokens::Match> AddedTokens::Find(std::string_view text, std::size_t from, bool parse_special) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    const auto first = static_cast<unsigned char>(text[begin]);
    if (!begins_always_[first] && !(parse_special && begins_special_[first])) continue;
    if (const std::optional<Match> match = MatchAt(text, begin, parse_special)) return match;
  }
  return std::nullopt;
}

std::optional<AddedTokens::Match> AddedTokens::MatchAt(std::string_view text, std::size_t begin,
                                                       bool parse_special) const {
  std::optional<Match> longest;
  bool strips_right = false;
  std::uint32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const auto edge = edges_.find(EdgeKey(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    const Token& token = nodes_[node];
    if (token.id == kNoToken || (token.is_special && !parse_special)) continue;
    longest = Match{begin, i + 1, token.id};
    strips_right = token.strips_right;
  }
  if (longest && strips_right) longest->end = SkipSpaces(text, longest->end);
  return longest;
}

}  // namespace berth
