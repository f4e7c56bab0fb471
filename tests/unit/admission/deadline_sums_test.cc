#include "admission/deadline_sums.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>

namespace berth {
namespace {

TEST(DeadlineSums, AgreesWithAPlainMap) {
  DeadlineSums sums;
  std::map<DeadlineSums::Key, double> expected;
  std::uint64_t state = 3;
  const auto draw = [&](std::uint64_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % n;
  };
  for (RequestKey request = 0; request < 3000; ++request) {
    const DeadlineSums::Key key{TimePoint(Duration(draw(50))), request};
    const auto weight = static_cast<double>(draw(100));
    sums.Insert(key, weight);
    expected[key] = weight;
    if (draw(3) == 0) {
      auto victim = std::next(expected.begin(), static_cast<std::ptrdiff_t>(draw(expected.size())));
      sums.Erase(victim->first);
      expected.erase(victim);
    }
    if (request % 10 != 0) continue;
    const DeadlineSums::Key probe{TimePoint(Duration(draw(50))), static_cast<RequestKey>(draw(3000))};
    double before = 0.0;
    for (const auto& [k, w] : expected) before += k < probe ? w : 0.0;
    ASSERT_DOUBLE_EQ(sums.SumBefore(probe), before);
  }
}

}  // namespace
}  // namespace berth
