#include "random_text.h"

#include <string_view>

#include "base/utf8.h"

namespace berth::test {
namespace {

char32_t InterestingCharacter(std::mt19937_64* random) {
  static constexpr std::u32string_view kPools[] = {
      U"stmdrevlSTMDREVL\u017F\u212A",                      // contractions, long s, Kelvin sign
      U"'''''\u2019",                                       // apostrophes
      U"      ",                                            // spaces
      U"\n\r\t\v\f\n\n",                                    // controls that are white space
      U"\u00A0\u0085\u1680\u2003\u2028\u3000\u180E\u200B",  // white space, and two that are none
      U"0123456789",
      U"\u0663\u00BD\u00B2\u2167\u0E53\U0001D7D8",  // numbers
      U"abcxyz\u00E9\u00DF\u0411\u03A9",            // letters
      U"\u65E5\u672C\uD55C\u05D0\u0E44\u0939",      // letters of other scripts
      U"\u0301\u0327\u093F\u0E31\u3099",            // marks
      U".,!?-_/(){}[]<>|=+*#$%&@`~^\"\\;:",
      U"\U0001F600\U0001F44B\u200D\uFE0F",  // emoji
  };
  const std::u32string_view pool = kPools[Pick(random, static_cast<int>(std::size(kPools)))];
  return pool[static_cast<std::size_t>(Pick(random, static_cast<int>(pool.size())))];
}

}  // namespace

int Pick(std::mt19937_64* random, int limit) { return static_cast<int>((*random)() % static_cast<unsigned>(limit)); }

char32_t RandomScalar(std::mt19937_64* random) {
  static constexpr int kLimits[] = {0x80, 0x800, 0x10000, 0x20000, 0x110000};
  for (;;) {
    const auto c = static_cast<char32_t>(Pick(random, kLimits[Pick(random, 5)]));
    if (c < 0xD800 || c > 0xDFFF) return c;
  }
}

std::string RandomText(std::mt19937_64* random, int max_characters, const std::function<bool(char32_t)>& allowed) {
  std::string text;
  for (int left = Pick(random, max_characters + 1); left > 0; --left) {
    const char32_t c = Pick(random, 8) == 0 ? RandomScalar(random) : InterestingCharacter(random);
    if (allowed(c)) AppendUtf8(c, &text);
  }
  return text;
}

}  // namespace berth::test
