// Tokens that are found in text as they are spelled, before anything else looks at it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "berth/units.h"

namespace berth {

// A trie. Finding is leftmost-longest and linear in the text for a given vocabulary: each position looks at no more
// bytes than the longest spelling has.
class AddedTokens {
 public:
  struct Token {
    TokenId id = kNoToken;
    bool is_special = false;    // found only with parse_special
    bool strips_right = false;  // swallows the white space after it
  };
  struct Match {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };

  // Of equal spellings the first added stays. REQUIRES: `spelling` is not empty.
  void Add(std::string_view spelling, const Token& token);

  // The first match that begins at or after `from`. REQUIRES: `text` is valid UTF-8.
  std::optional<Match> Find(std::string_view text, std::size_t from, bool parse_special) const;

 private:
  std::optional<Match> MatchAt(std::string_view text, std::size_t begin, bool parse_special) const;

  std::vector<Token> nodes_ = {Token{}};  // the token that ends at each node, if any; node 0 is the root
  absl::flat_hash_map<std::uint64_t, std::uint32_t> edges_;  // node << 8 | byte -> node
  std::array<bool, 256> begins_always_{};                    // first bytes of tokens that are always found
  std::array<bool, 256> begins_special_{};                   // first bytes of the others
};

}  // namespace berth
