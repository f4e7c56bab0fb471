#include "cli/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace berth::cli {

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

std::string ColumnTable::Text() const {
  const auto width_of = [](const std::string& cell) {
    return static_cast<std::size_t>(std::count_if(
        cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  };
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::size_t pad = 2;
    for (std::size_t c = 0; c < row.size(); ++c) {
      text.append(pad, ' ');
      text += row[c];
      pad = widths[c] - width_of(row[c]) + 2;
    }
    text += '\n';
  }
  return text;
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
