// Finds stop strings in streamed text without ever letting part of one out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

// One sequence's matcher over any number of stop strings. Work per byte does not depend on how the text is cut.
class StopMatcher {
 public:
  struct Output {
    std::string text;                      // safe to show: it is no beginning of a stop string
    std::optional<std::string> matched;    // the stop string found; the text before it is in `text`
  };

  // `include_stop_text`: the match itself is part of `text`. Of several that match, the one that ends first wins, the
  // longest of those.
  StopMatcher(std::vector<std::string> stop_strings, bool include_stop_text);

  // After a match nothing more may be appended.
  Output Append(std::string_view text);
  // The end of the text: what was held back as a possible beginning.
  std::string Flush();

 private:
  std::vector<std::string> stop_strings_;
  bool include_stop_text_;
  std::string held_;
};

}  // namespace berth
