#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <string>

#include "base/utf8.h"
#include "pcre2_matcher.h"
#include "random_text.h"

namespace berth {
namespace {

std::string Utf8(char32_t c) {
  std::string text;
  AppendUtf8(c, &text);
  return text;
}

std::string Nfc(std::string_view text) {
  std::string storage;
  return std::string(NormalizeNfc(text, &storage));
}

TEST(Unicode, ClassesAreThoseOfUnicode15) {
  EXPECT_EQ(ClassOf(0x31350), CharClass::kLetter);  // new in 15: CJK extension H
  EXPECT_EQ(ClassOf(0x1E030), CharClass::kLetter);  // new in 15: modifier letter Cyrillic small a
  EXPECT_EQ(ClassOf(0x180E), CharClass::kOther);    // was white space before Unicode 6.3
  EXPECT_EQ(ClassOf(0x017F), CharClass::kLetter);
  EXPECT_EQ(ClassOf(0x0085), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x3000), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x200B), CharClass::kOther);
  EXPECT_EQ(ClassOf(0x00BD), CharClass::kNumber);
  EXPECT_EQ(ClassOf(0x2167), CharClass::kNumber);
  EXPECT_EQ(ClassOf(0x0301), CharClass::kOther);
  EXPECT_EQ(ClassOf(0x10FFFF), CharClass::kOther);
}

TEST(Unicode, ClassesAgreeWithPcre2OnEveryCharacterItKnows) {
  const test::Pcre2Matcher unassigned("\\p{Cn}");
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (test::Pcre2ClassOf(c) == ClassOf(c)) continue;
    // PCRE2 10.42 has Unicode 14 and counts U+180E among white space.
    ASSERT_TRUE(c == 0x180E || unassigned.MatchEnd(Utf8(c), 0)) << "U+" << std::hex << static_cast<std::uint32_t>(c);
  }
}

TEST(Unicode, NfcComposesReordersAndLeavesTheRest) {
  EXPECT_EQ(Nfc("plain caf\xC3\xA9"), "plain caf\xC3\xA9");
  EXPECT_EQ(Nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(Nfc("\xE2\x84\xAA"), "K");                                     // Kelvin sign
  EXPECT_EQ(Nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");  // Hangul jamo
  EXPECT_EQ(Nfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87");                // dot below comes first
  EXPECT_EQ(Nfc("\xEF\xAC\x81"), "\xEF\xAC\x81");                          // a ligature is compatibility only
  EXPECT_EQ(Nfc("\xE0\xA4\xA8\xE0\xA4\xBC\xE0\xA5\x98"), "\xE0\xA4\xA9\xE0\xA4\x95\xE0\xA4\xBC");  // excluded composite
}

TEST(Unicode, NfcAgreesWithUtf8proc) {
  std::mt19937_64 random(20);
  for (int i = 0; i < 20000; ++i) {
    std::string text = test::RandomText(&random, 12, [](char32_t c) { return c != 0; });
    for (int marks = test::Pick(&random, 6); marks > 0; --marks) {
      AppendUtf8(static_cast<char32_t>(0x300 + test::Pick(&random, 0x70)), &text);
    }
    utf8proc_uint8_t* expected = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_NE(expected, nullptr);
    EXPECT_EQ(Nfc(text), reinterpret_cast<const char*>(expected));
    std::free(expected);
  }
}

TEST(Unicode, NfcShrinksNoTextMoreThanItSays) {
  for (const std::string text :
       {"\xE1\xBE\xBE\xCC\x88\xCC\x81", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xE2\x84\xAA"}) {
    EXPECT_LE(text.size(), Nfc(text).size() * kMaxNfcShrink) << text;
  }
}

}  // namespace
}  // namespace berth
