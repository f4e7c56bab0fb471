#include "cli/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace berth::cli {
namespace {

constexpr std::size_t kGap = 2;  // between columns

std::size_t Characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

double RoundedLogprob(float logprob) { return std::round(static_cast<double>(logprob) * 1e6) / 1e6; }

bool Output::Write(std::string_view text) {
  if (error_ != 0) return false;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) error_ = errno != 0 ? errno : EIO;
  return error_ == 0;
}

bool Output::WriteLine(std::string_view text) { return Write(text) && Write("\n"); }

bool Output::Flush() {
  if (error_ != 0) return false;
  errno = 0;
  if (std::fflush(file_) != 0) error_ = errno != 0 ? errno : EIO;
  return error_ == 0;
}

Outcome Output::Finish() {
  Flush();
  if (error_ == 0 || error_ == EPIPE) return {};
  return UsageError(std::string("cannot write to standard output: ") + std::strerror(error_));
}

std::string FactTable::Text() const {
  std::size_t width = 0;
  for (const auto& [name, value] : rows_) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : rows_) {
    text += "  ";
    text += name;
    text.append(width - name.size() + 2, ' ');
    text += value;
    text += '\n';
  }
  return text;
}

std::string ColumnTable::Text(std::size_t most_columns) const {
  const std::size_t all = rows_.front().size();
  std::vector<std::size_t> widths(all, 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < all; ++c) widths[c] = std::max(widths[c], Characters(row[c]));
  }
  std::string text;
  for (std::size_t begin = 1, end = 1; begin == 1 || begin < all; begin = end) {
    // At least one column beside the first, whatever its width.
    std::size_t line = kGap + widths[0];
    for (; end < all && (end == begin || line + kGap + widths[end] <= most_columns); ++end) line += kGap + widths[end];
    if (!text.empty()) text += '\n';
    for (const auto& row : rows_) {
      text.append(kGap, ' ');
      text += row[0];
      std::size_t pad = widths[0] - Characters(row[0]) + kGap;
      for (std::size_t c = begin; c < end; ++c) {
        text.append(pad, ' ');
        text += row[c];
        pad = widths[c] - Characters(row[c]) + kGap;
      }
      text += '\n';
    }
    if (end == begin) break;  // one column in all
  }
  return text;
}

std::string_view FirstScreen(std::string_view text, std::size_t columns, std::size_t rows) {
  std::size_t used = 1;
  std::size_t shown = 0;
  while (shown < text.size()) {
    const std::size_t end = std::min(text.find('\n', shown), text.size() - 1);
    const std::size_t length = Characters(text.substr(shown, end - shown));
    used += length == 0 ? 1 : (length - 1) / columns + 1;
    if (used > rows) break;
    shown = end + 1;
  }
  return text.substr(0, shown);
}

std::string GroupDigits(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string Fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string Quoted(std::string_view text) { return DumpJson(Json(std::string(text))); }

std::string OneLine(std::string_view text) {
  // Through JSON and back: what is no UTF-8 comes out as U+FFFD.
  std::string line = Json::parse(Quoted(text)).get<std::string>();
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace berth::cli
