#include "cli/input.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "base/text.h"
#include "config/size.h"

namespace berth::cli {
namespace {

std::string Shortened(std::string_view text) {
  constexpr std::size_t kShown = 40;
  return text.size() <= kShown ? std::string(text) : std::string(CutAtCharacter(text, kShown)) + "...";
}

// What nlohmann reports, without its own prefix of brackets and codes, and without what it read last: that can be as
// long as the line.
std::string JsonFault(const nlohmann::json::exception& error) {
  std::string_view what = error.what();
  what = what.substr(0, what.find("; last read: "));
  const std::size_t colon = what.find(": ");
  const std::size_t bracket = what.find("] ");
  return std::string(what.substr(colon != std::string_view::npos     ? colon + 2
                                 : bracket != std::string_view::npos ? bracket + 2
                                                                     : 0));
}

absl::Status NotAnId(std::string_view part) {
  return absl::InvalidArgumentError("\"" + Shortened(part) + "\" is no token id (a whole number from 0)");
}

}  // namespace

absl::StatusOr<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> chunk;
  for (;;) {
    errno = 0;
    const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file);
    text.append(chunk.data(), got);
    if (static_cast<std::int64_t>(text.size()) > kMaxTextBytes)
      return absl::InvalidArgumentError(name + " is longer than the " + FormatBytes(kMaxTextBytes) +
                                        " that one text may have");
    if (got < chunk.size()) break;
  }
  if (std::ferror(file) != 0) return absl::InvalidArgumentError("cannot read " + name + ": " + std::strerror(errno));
  return text;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  if (path == "-") return ReadAll(stdin, "standard input");
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return absl::NotFoundError("cannot read " + path + ": " + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("cannot read " + path + ": it is a directory");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return absl::NotFoundError("cannot read " + path + ": " + std::strerror(errno));
  return ReadAll(file.get(), path);
}

absl::StatusOr<std::optional<std::string_view>> LineReader::Next() {
  int c = 0;
  if (std::exchange(too_long_, false)) {
    do c = getc_unlocked(file_);
    while (c != EOF && c != '\n');
  }
  line_.clear();
  errno = 0;
  while ((c = getc_unlocked(file_)) != EOF && c != '\n') {
    if (std::ssize(line_) == max_line_bytes_) {
      too_long_ = true;
      return AtLine(++line_number_, absl::OutOfRangeError("the line is longer than the " +
                                                          FormatBytes(max_line_bytes_) + " that a line may have"));
    }
    line_.push_back(static_cast<char>(c));
  }
  if (std::ferror(file_) != 0) {
    return absl::InvalidArgumentError("cannot read " + name_ + ": " + std::strerror(errno));
  }
  if (c == EOF && line_.empty()) return std::nullopt;
  ++line_number_;
  ended_with_newline_ = c == '\n';
  return line_;
}

absl::StatusOr<std::vector<TokenId>> ParseTokenIds(std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n";
  std::vector<TokenId> ids;
  for (std::size_t begin = text.find_first_not_of(kSeparators); begin != std::string_view::npos;
       begin = text.find_first_not_of(kSeparators, begin)) {
    const std::string_view part = text.substr(begin, text.find_first_of(kSeparators, begin) - begin);
    TokenId id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size() || id < 0) return NotAnId(part);
    ids.push_back(id);
    begin += part.size();
  }
  return ids;
}

absl::Status CheckTokenIds(const std::vector<TokenId>& ids, std::int32_t vocab_size) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError("token id " + std::to_string(id) + " is outside the vocabulary of " +
                                        std::to_string(vocab_size) + " tokens (0 to " + std::to_string(vocab_size - 1) +
                                        ")");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view line) {
  try {
    nlohmann::json value = nlohmann::json::parse(line);
    if (!value.is_object()) return absl::InvalidArgumentError("it must be a JSON object");
    return value;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError("it is not JSON: " + JsonFault(error));
  }
}

absl::StatusOr<std::string> TextMember(const nlohmann::json& object) {
  const auto found = object.find("text");
  if (found == object.end()) return absl::NotFoundError("\"text\" is missing");
  if (!found->is_string()) return absl::InvalidArgumentError("\"text\" must be a string");
  return found->get<std::string>();
}

absl::StatusOr<std::vector<TokenId>> IdsMember(const nlohmann::json& object, const std::string& name) {
  const auto found = object.find(name);
  const std::string quoted = "\"" + name + "\"";
  if (found == object.end()) return absl::NotFoundError(quoted + " is missing");
  if (!found->is_array()) return absl::InvalidArgumentError(quoted + " must be a list of token ids");
  std::vector<TokenId> ids;
  ids.reserve(found->size());
  for (const nlohmann::json& id : *found) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(INT32_MAX)) {
      return absl::InvalidArgumentError("element " + std::to_string(ids.size()) + " of " + quoted +
                                        " is no token id (a whole number from 0)");
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

absl::StatusOr<bool> BoolMember(const nlohmann::json& object, const char* name, bool absent) {
  const auto found = object.find(name);
  if (found == object.end()) return absent;
  if (!found->is_boolean()) return absl::InvalidArgumentError(std::string("\"") + name + "\" must be true or false");
  return found->get<bool>();
}

absl::Status AtLine(std::int64_t line_number, const absl::Status& status) {
  return absl::Status(status.code(), "line " + std::to_string(line_number) + ": " + std::string(status.message()));
}

}  // namespace berth::cli
