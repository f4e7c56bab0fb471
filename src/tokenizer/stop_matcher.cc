#include "tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings, bool include_stop_text)
    : include_stop_text_(include_stop_text) {
  for (std::string& stop : stop_strings) {
    if (stop.empty()) continue;
    Pattern pattern;
    pattern.borders.assign(stop.size() + 1, 0);
    for (std::size_t n = 2; n <= stop.size(); ++n) {
      std::size_t border = pattern.borders[n - 1];
      while (border > 0 && stop[border] != stop[n - 1]) border = pattern.borders[border];
      pattern.borders[n] = stop[border] == stop[n - 1] ? border + 1 : 0;
    }
    pattern.text = std::move(stop);
    patterns_.push_back(std::move(pattern));
  }
}

void StopMatcher::Pattern::Advance(char byte) {
  while (matched > 0 && text[matched] != byte) matched = borders[matched];
  if (text[matched] == byte) ++matched;
}

StopMatcher::Output StopMatcher::Append(std::string_view text) {
  BERTH_CHECK(!finished_);
  std::string seen = std::exchange(held_, {});
  const std::size_t held_bytes = seen.size();
  seen += text;
  for (std::size_t i = held_bytes; i < seen.size(); ++i) {
    const Pattern* longest = nullptr;
    for (Pattern& pattern : patterns_) {
      pattern.Advance(seen[i]);
      const bool is_whole = pattern.matched == pattern.text.size();
      if (is_whole && (longest == nullptr || pattern.text.size() > longest->text.size())) longest = &pattern;
    }
    if (longest != nullptr) return Finish(*longest, std::string_view(seen).substr(0, i + 1));
  }

  std::size_t possible_bytes = 0;
  for (const Pattern& pattern : patterns_) possible_bytes = std::max(possible_bytes, pattern.matched);
  held_ = seen.substr(seen.size() - possible_bytes);
  seen.resize(seen.size() - possible_bytes);
  return {std::move(seen), std::nullopt};
}

// `seen`: what was held and appended, up to the end of the match.
StopMatcher::Output StopMatcher::Finish(const Pattern& pattern, std::string_view seen) {
  finished_ = true;
  if (!include_stop_text_) seen.remove_suffix(pattern.text.size());
  return {std::string(seen), pattern.text};
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace berth
