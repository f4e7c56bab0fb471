// Damaged policy files: whatever stands in them, an answer and no crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "base/utf8.h"
#include "policy_cases.h"

namespace berth {
namespace {

std::string Original() {
  const absl::StatusOr<std::string> text =
      ReadConfigFile(std::string(BERTH_TEST_DATA_DIR) + "/../../configs/berth.yaml");
  EXPECT_TRUE(text.ok());
  std::string whole = text.value_or("");
  // With what the file only shows in comments.
  whole.insert(whole.find("  # acme:"),
               "  acme:\n    weight: 4\n    api_key_sha256: [{id: acme-1, sha256: " + std::string(64, '0') +
                   "}]\n    max_kv: 40%\n    tokens_per_minute: 600000\n    burst_tokens: 100000\n");
  return whole;
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string Mutate(std::string text) {
    for (std::size_t edits = 1 + Below(8); edits > 0; --edits) Edit(&text);
    return text;
  }

 private:
  std::size_t Below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void Edit(std::string* text) {
    static const char* const kPieces[] = {
        "[",    "]",        "{",    "}", ":",     "- ",  "? ",      "&a ", "*a",
        "!x ",  "|\n",      ">\n",  "'", "\"",    "#",   "\n---\n", "%",   "\t",
        "\n",   ",",        "0",    "-", "1e400", "nan", "%%",      "GiB", "99999999999999999999",
        "\xff", "\xe2\x82", "\x01", "~", "<<: "};
    const std::size_t at = Below(text->size());
    switch (Below(5)) {
      case 0:
        if (!text->empty()) (*text)[at] = static_cast<char>(Below(256));
        return;
      case 1:
        text->erase(at, Below(40));
        return;
      case 2:
        text->insert(at, kPieces[Below(std::size(kPieces))]);
        return;
      case 3:  // a piece from elsewhere in the file
        text->insert(at, text->substr(Below(text->size()), Below(120)));
        return;
      default: {  // one number becomes another
        const std::size_t digit = text->find_first_of("0123456789", at);
        if (digit != std::string::npos) (*text)[digit] = static_cast<char>('0' + Below(10));
      }
    }
  }

  std::mt19937 random_;
};

TEST(PolicyMutation, EveryDamagedFileIsTakenOrRefusedInCleanLines) {
  const std::string original = Original();
  int taken = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    const std::string text = Mutator(seed).Mutate(original);
    Diagnostics diagnostics("p.yaml");
    const ServerConfig config = ParsePolicy(text, &diagnostics);
    if (diagnostics.ok()) {
      ResolvePolicy(config, test::SmallPool(), &diagnostics);
      ++taken;
    }
    EXPECT_LE(diagnostics.Lines().size(), Diagnostics::kMostKept + 1);
    for (const std::string& line : diagnostics.Lines()) {
      const bool clean = std::none_of(line.begin(), line.end(), [](char c) { return c >= 0 && c < 0x20; });
      EXPECT_TRUE(clean && !FindInvalidUtf8(line)) << "seed " << seed << ": " << line;
    }
  }
  // Neither is the parser deaf nor the damage too great.
  EXPECT_GT(taken, 200);
  EXPECT_LT(taken, 1800);
}

}  // namespace
}  // namespace berth
