// Finds stop strings in streamed text without ever letting part of one out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

// One sequence's matcher over any number of stop strings. Work per byte does not depend on how the text is cut.
class StopMatcher {
 public:
  struct Output {
    std::string text;                    // safe to show: it is no beginning of a stop string
    std::optional<std::string> matched;  // the stop string found; the text before it is in `text`
  };

  // `include_stop_text`: the match itself is part of `text`. Of several that match, the one that ends first wins, the
  // longest of those. Empty stop strings match nothing.
  StopMatcher(std::vector<std::string> stop_strings, bool include_stop_text);

  // After a match nothing more may be appended.
  Output Append(std::string_view text);
  // The end of the text: what was held back as a possible beginning.
  std::string Flush();

 private:
  // A stop string and how much of it the text ends with (Knuth, Morris and Pratt).
  struct Pattern {
    std::string text;
    std::vector<std::size_t> borders;  // [n]: the longest proper beginning of text[0, n) that is also its end
    std::size_t matched = 0;           // the longest beginning of `text` that the appended text ends with

    void Advance(char byte);
  };

  Output Finish(const Pattern& pattern, std::string_view seen);

  std::vector<Pattern> patterns_;
  bool include_stop_text_;
  bool finished_ = false;
  std::string held_;  // the longest end of the text that is the beginning of a stop string
};

}  // namespace berth
