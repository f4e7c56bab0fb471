#include "config/diagnostics.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace berth {
namespace {

std::string Counted(int count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace

void Diagnostics::Add(Severity severity, const std::string& key, std::string message) {
  Keep({severity, key, Find(key), std::move(message)});
}

void Diagnostics::ErrorAt(Location location, const std::string& key, std::string message) {
  Keep({Severity::kError, key, location, std::move(message)});
}

void Diagnostics::Keep(Diagnostic diagnostic) {
  ++(diagnostic.severity == Severity::kError ? errors_ : warnings_);
  if (kept_.size() < kMostKept) kept_.push_back(std::move(diagnostic));
}

Location Diagnostics::Find(std::string_view key) const {
  for (;;) {
    if (const auto found = locations_.find(key); found != locations_.end()) return found->second;
    const std::size_t dot = key.rfind('.');
    if (key.empty()) return {};
    key = key.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
}

std::vector<Diagnostic> Diagnostics::Sorted() const {
  std::vector<Diagnostic> sorted = kept_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.location.line, a.location.column) < std::tie(b.location.line, b.location.column);
  });
  return sorted;
}

std::string Diagnostics::Line(const Diagnostic& diagnostic) const {
  std::string line = file_;
  if (diagnostic.location.line > 0) {
    absl::StrAppend(&line, line.empty() ? "" : ":", diagnostic.location.line, ":", diagnostic.location.column);
  }
  if (!line.empty()) line += ": ";
  line += diagnostic.severity == Severity::kError ? "error: " : "warning: ";
  if (!diagnostic.key.empty()) line += diagnostic.key + ": ";
  return line + diagnostic.message;
}

std::vector<std::string> Diagnostics::Lines() const {
  std::vector<std::string> lines;
  for (const Diagnostic& diagnostic : Sorted()) lines.push_back(Line(diagnostic));
  const int left_out = errors_ + warnings_ - static_cast<int>(kept_.size());
  if (left_out > 0) lines.push_back(absl::StrCat(file_, file_.empty() ? "" : ": ", left_out, " more left out"));
  return lines;
}

std::string Diagnostics::Summary() const {
  std::string text;
  if (errors_ > 0) text = Counted(errors_, "error");
  if (warnings_ > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", Counted(warnings_, "warning"));
  return text;
}

std::string Shown(std::string_view text) {
  constexpr std::size_t kMostBytes = 40;
  std::string shown(CutAtCharacter(text, kMostBytes));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return absl::StrCat("\"", shown, text.size() > kMostBytes ? "..." : "", "\"");
}

}  // namespace berth
