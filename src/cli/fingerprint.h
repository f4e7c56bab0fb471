// Tells whether something is what it was before, across runs and machines: FNV-1a over 64 bits
// (http://www.isthe.com/chongo/tech/comp/fnv/). Against accidents, not against anybody's intent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace berth::cli {

class Fingerprint {
 public:
  // Parts are kept apart: "a", "bc" and "ab", "c" differ.
  void Add(std::string_view part);
  std::uint64_t value() const { return hash_; }
  // 16 hexadecimal digits.
  std::string Hex() const;

 private:
  void AddByte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }

  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

// Of a model file, wherever it lies: its size and some MiB of it, from its beginning, middle and end.
absl::StatusOr<Fingerprint> FingerprintModel(const std::string& path);

}  // namespace berth::cli
