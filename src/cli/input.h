// What a command reads: files, standard input line by line, lists of ids. Everything is bounded.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "berth/units.h"

namespace berth::cli {

// More text than any context holds; a line or a file beyond it is refused rather than read into memory.
inline constexpr std::int64_t kMaxTextBytes = 64LL * 1024 * 1024;

// The whole file ("-" = standard input). Errors name the file.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);
absl::StatusOr<std::string> ReadAll(std::FILE* file, const std::string& name);

// Lines of a stream, without their newlines; a last line without one counts.
class LineReader {
 public:
  // `name` stands for the stream in errors.
  LineReader(std::FILE* file, std::string name, std::int64_t max_line_bytes = kMaxTextBytes)
      : file_(file), name_(std::move(name)), max_line_bytes_(max_line_bytes) {}

  // Valid until the next call; nothing at the end. A line that is too long is OutOfRange, naming its number, and the
  // line behind it can be had all the same; an unreadable stream is InvalidArgument.
  absl::StatusOr<std::optional<std::string_view>> Next();
  std::int64_t line_number() const { return line_number_; }  // of the last line given or too long, from 1
  // Whether that line had its newline, so that it is whole.
  bool ended_with_newline() const { return ended_with_newline_; }

 private:
  std::FILE* file_;
  std::string name_;
  std::int64_t max_line_bytes_;
  std::string line_;
  std::int64_t line_number_ = 0;
  bool too_long_ = false;  // the last line; the rest of it is still to be skipped
  bool ended_with_newline_ = false;
};

// "1, 2 3" → {1, 2, 3}: separated by commas or blanks. Errors quote the part that is no id.
absl::StatusOr<std::vector<TokenId>> ParseTokenIds(std::string_view text);

// Whole numbers within the vocabulary, or an error that names the bad one and the vocabulary's size.
absl::Status CheckTokenIds(const std::vector<TokenId>& ids, std::int32_t vocab_size);

// One line of JSONL as an object; not JSON, or not an object, is an error.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view line);
// The members of such an object. Absent: NotFound for a text or ids, the default for a flag; a wrong type is an error.
absl::StatusOr<std::string> TextMember(const nlohmann::json& object);
absl::StatusOr<std::vector<TokenId>> IdsMember(const nlohmann::json& object, const std::string& name);
absl::StatusOr<bool> BoolMember(const nlohmann::json& object, const char* name, bool absent);

// "line 7: message"
absl::Status AtLine(std::int64_t line_number, const absl::Status& status);

}  // namespace berth::cli
