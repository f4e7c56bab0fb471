// The part of a tokenizer that turns plain text, without special tokens, into ids.
#pragma once

#include <string_view>
#include <vector>

#include "berth/units.h"

namespace berth {

// Immutable; thread-safe.
class TextModel {
 public:
  virtual ~TextModel() = default;

  // Appends the ids of `text` to `ids`. n log n for any text. REQUIRES: valid UTF-8, not empty, less than 2 GiB.
  virtual void Encode(std::string_view text, std::vector<TokenId>* ids) const = 0;
};

}  // namespace berth
