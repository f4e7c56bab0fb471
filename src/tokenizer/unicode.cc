#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/unicode_table.h"

namespace berth {
namespace {

CharClass Search(char32_t code_point) {
  // The last run that begins at or before the code point; the first begins at 0.
  const std::uint32_t key = (static_cast<std::uint32_t>(code_point) << 2) | 3;
  const auto after = std::upper_bound(kCharClassRuns.begin(), kCharClassRuns.end(), key);
  return static_cast<CharClass>(*(after - 1) & 3);
}

constexpr std::array<CharClass, 128> AsciiClasses() {
  std::array<CharClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = CharClass::kLetter;
    if (c >= '0' && c <= '9') classes[c] = CharClass::kNumber;
    if (c == ' ' || (c >= '\t' && c <= '\r')) classes[c] = CharClass::kSpace;
  }
  return classes;
}

constexpr std::array<CharClass, 128> kAsciiClasses = AsciiClasses();

constexpr auto kNfcOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

int CombiningClass(utf8proc_int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

std::vector<utf8proc_int32_t> Decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> result;
  result.reserve(text.size());
  std::array<utf8proc_int32_t, 16> parts;  // the longest canonical decomposition has 4
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(text);
    text.remove_prefix(static_cast<std::size_t>(prefix.bytes));
    int boundary_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(prefix.code_point), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), kNfcOptions, &boundary_class);
    BERTH_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    result.insert(result.end(), parts.begin(), parts.begin() + count);
  }
  return result;
}

// Unicode 15, section 3.11, definition D109. utf8proc's own loop swaps neighbours, which takes n² steps for a long run
// of marks; anyone may send such a run.
void SortMarks(std::vector<utf8proc_int32_t>* code_points) {
  auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
  auto it = code_points->begin();
  while (it != code_points->end()) {
    it = std::find_if_not(it, code_points->end(), is_starter);
    const auto run_end = std::find_if(it, code_points->end(), is_starter);
    std::stable_sort(it, run_end,
                     [](utf8proc_int32_t a, utf8proc_int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    it = run_end;
  }
}

}  // namespace

CharClass ClassOf(char32_t code_point) {
  return code_point < kAsciiClasses.size() ? kAsciiClasses[code_point] : Search(code_point);
}

std::string_view NormalizeNfc(std::string_view text, std::string* storage) {
  // Everything below U+0300 (bytes CC 80) is a starter, in normal form, and composes with nothing below U+0300.
  const auto may_change = [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), may_change)) return text;

  std::vector<utf8proc_int32_t> code_points = Decompose(text);
  SortMarks(&code_points);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), kNfcOptions);
  BERTH_CHECK(count >= 0);
  storage->clear();
  storage->reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(code_points[i]), storage);
  return *storage;
}

}  // namespace berth
