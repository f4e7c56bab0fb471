// What is wrong with a policy file, line by line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

// Counted from 1; 0 = not in the file.
struct Location {
  int line = 0;
  int column = 0;
};

enum class Severity : std::uint8_t { kError, kWarning };

struct Diagnostic {
  Severity severity = Severity::kError;
  std::string key;  // "classes.batch.kv_guarantee"; empty where the file as a whole is meant
  Location location;
  std::string message;  // one line: the thing, the limit and the remedy
};

// Collects findings and knows where each key stands, so that whoever checks a value needs only its name. Bounded: what
// lies beyond kMostKept is counted, not kept. Not thread-safe.
class Diagnostics {
 public:
  static constexpr std::size_t kMostKept = 100;

  // `file` stands before each line; empty where the settings come from no file.
  explicit Diagnostics(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }

  // Where `key` stands; "" = where what has no place of its own is told. A later word on the same key is ignored.
  void Locate(std::string key, Location location) { locations_.emplace(std::move(key), location); }
  // The file itself has the key.
  bool Given(const std::string& key) const { return locations_.contains(key); }

  // A finding at the key, or where the file lacks it at the nearest key around it.
  void Error(const std::string& key, std::string message) { Add(Severity::kError, key, std::move(message)); }
  void Warning(const std::string& key, std::string message) { Add(Severity::kWarning, key, std::move(message)); }
  void Add(Severity severity, const std::string& key, std::string message);
  void ErrorAt(Location location, const std::string& key, std::string message);

  bool ok() const { return errors_ == 0; }
  int errors() const { return errors_; }
  int warnings() const { return warnings_; }
  // In the order of the file.
  std::vector<Diagnostic> Sorted() const;
  // "file:line:column: error: key: message", one line a finding; a last one tells how many were left out.
  std::vector<std::string> Lines() const;
  std::string Line(const Diagnostic& diagnostic) const;
  // "2 errors, 1 warning"
  std::string Summary() const;

 private:
  Location Find(std::string_view key) const;
  void Keep(Diagnostic diagnostic);

  std::string file_;
  std::map<std::string, Location, std::less<>> locations_;
  std::vector<Diagnostic> kept_;
  int errors_ = 0;
  int warnings_ = 0;
};

// A piece of the file for a message: at most 40 bytes in quotes, cut between characters, control characters as '?'.
std::string Shown(std::string_view text);

}  // namespace berth
