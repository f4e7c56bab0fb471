#include "tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace berth {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int, kAlphabetEnd> byte{};  // -1: not in the alphabet
};

constexpr bool IsItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = IsItself(byte) ? byte : next++;
    alphabet.character[byte] = static_cast<char32_t>(character);
    alphabet.byte[character] = byte;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();
static_assert(kAlphabet.byte[kAlphabetEnd - 1] == 0xAD);

}  // namespace

char32_t SpellByte(unsigned char byte) { return kAlphabet.character[byte]; }

std::string UnspellBytes(std::string_view spelling) {
  std::string bytes;
  for (std::string_view rest = spelling; !rest.empty();) {
    const Utf8Prefix prefix = ReadUtf8(rest);
    rest.remove_prefix(static_cast<std::size_t>(prefix.bytes));
    const int byte = prefix.code_point < kAlphabet.byte.size() ? kAlphabet.byte[prefix.code_point] : -1;
    if (byte < 0) return std::string(spelling);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace berth
