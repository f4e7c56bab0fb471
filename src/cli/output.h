// Standard output and what goes there: text as it is, JSON for machines, tables for people.
#pragma once

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/outcome.h"

namespace berth::cli {

// Keys in the order they are written: part of what scripts see.
using Json = nlohmann::ordered_json;

// One line, no newline. Strings that are not UTF-8 get U+FFFD: never an exception.
std::string DumpJson(const Json& value);

// Six decimals, so that a float does not print as its float64 neighbour.
double RoundedLogprob(float logprob);

// Keeps the first failure; later writes do nothing. A reader that went away (a closed pipe) is no failure: output stops
// being wanted and the command should end quietly.
class Output {
 public:
  explicit Output(std::FILE* file) : file_(file) {}

  // False once writing is over, whatever the reason.
  bool Write(std::string_view text);
  bool WriteLine(std::string_view text);
  bool WriteJson(const Json& value) { return WriteLine(DumpJson(value)); }
  // What was written so far reaches the reader now.
  bool Flush();

  bool closed() const { return error_ != 0; }
  // Flushes; the failure, if there was one.
  Outcome Finish();

 private:
  std::FILE* file_;
  int error_ = 0;  // errno of the first failure
};

// Names left, values in one column: "  context   8192 tokens".
class FactTable {
 public:
  void Add(std::string name, std::string value) { rows_.emplace_back(std::move(name), std::move(value)); }
  std::string Text() const;

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

inline constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

// Columns under a header, two spaces between them, as wide as their widest cell. Cells count characters of UTF-8.
class ColumnTable {
 public:
  explicit ColumnTable(std::vector<std::string> header) : rows_{std::move(header)} {}
  // REQUIRES: as many cells as the header has.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Where a line would be longer than `most_columns` characters, what does not fit comes below, as further tables that
  // begin with the first column again.
  std::string Text(std::size_t most_columns = kAnyNumber) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// The lines of `text` that a screen of `columns` by `rows` shows from the top, long ones over several rows, with a row
// left for the cursor.
std::string_view FirstScreen(std::string_view text, std::size_t columns, std::size_t rows);

// "134,515,008"
std::string GroupDigits(std::int64_t value);
// printf of one double: Fixed(3.14159, 2) = "3.14".
std::string Fixed(double value, int decimals);
// Control characters and quotes escaped, so that a text fits a cell of a table.
std::string Quoted(std::string_view text);
// Control characters become spaces and what is no UTF-8 U+FFFD: what standard error says is one line, whatever it
// quotes.
std::string OneLine(std::string_view text);

}  // namespace berth::cli
