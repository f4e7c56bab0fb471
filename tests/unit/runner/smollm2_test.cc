// The default model against its oracle: an independent float64 forward pass, written down in tests/data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backend_harness.h"
#include "fakes/test_data.h"

namespace berth::test {
namespace {

struct OracleStep {
  std::vector<std::pair<TokenId, double>> top;  // best first
};

struct OracleCase {
  std::string name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  std::vector<OracleStep> steps;  // one per greedy id
};

struct Oracle {
  std::vector<OracleCase> cases;
  std::vector<TokenId> text;
  std::vector<double> text_logprobs;
  double perplexity = 0;
};

Oracle ReadOracle() {
  const nlohmann::json json = nlohmann::json::parse(ReadFile(DataFile("smollm2-oracle.json")));
  Oracle oracle;
  for (const nlohmann::json& from : json["cases"]) {
    OracleCase& to = oracle.cases.emplace_back();
    to.name = from["name"];
    to.prompt = from["prompt_ids"].get<std::vector<TokenId>>();
    to.greedy = from["greedy_ids"].get<std::vector<TokenId>>();
    for (const nlohmann::json& step : from["steps"]) {
      to.steps.push_back({step["top"].get<std::vector<std::pair<TokenId, double>>>()});
    }
  }
  oracle.text = json["perplexity"]["ids"].get<std::vector<TokenId>>();
  oracle.text_logprobs = json["perplexity"]["logprobs"].get<std::vector<double>>();
  oracle.perplexity = json["perplexity"]["perplexity"];
  return oracle;
}

// kFloat32: float32 mode; otherwise the default mode.
std::unique_ptr<Backend> MakeSmolLm2(const Model& model, KvDtype kv_dtype) {
  CpuBackendOptions options;
  options.threads = 2;
  options.compute = kv_dtype == KvDtype::kFloat32 ? ComputeMode::kFloat32 : ComputeMode::kDefault;
  options.kv_dtype = kv_dtype;
  options.pool = {256, 16};
  options.max_step_tokens = 256;
  return MakeBackend(model, options);
}

// Feeds prompt and greedy ids; what follows the prompt and each greedy id but the last.
std::vector<Following> FeedGreedy(Backend& backend, const OracleCase& c, std::int32_t top) {
  FedSequence sequence{c.prompt, {}, 0};
  sequence.ids.insert(sequence.ids.end(), c.greedy.begin(), c.greedy.end());
  sequence.blocks = Blocks(static_cast<std::int64_t>(sequence.ids.size()), 16);
  const auto prompt = static_cast<std::int32_t>(c.prompt.size());
  StepUnderTest step;
  std::vector<Following> all;
  while (sequence.left() > 1) {
    const std::int32_t count = std::min(256, sequence.left() - 1);
    const std::int32_t wanted = std::clamp(sequence.stored + count - (prompt - 1), 0, count);
    step.Feed(&sequence, count, wanted, top);
    const auto answers = step.Run(backend);
    all.insert(all.end(), answers.front().begin(), answers.front().end());
  }
  return all;
}

double Perplexity(Backend& backend, const Oracle& oracle) {
  const FedSequence sequence{oracle.text, Blocks(static_cast<std::int64_t>(oracle.text.size()), 16), 0};
  const std::vector<Following> all = FeedAll(backend, sequence, 256, kNoLogprobs);
  double sum = 0;
  for (std::size_t i = 0; i < oracle.text_logprobs.size(); ++i) sum += all[i].logprob;
  return std::exp(-sum / static_cast<double>(oracle.text_logprobs.size()));
}

// Sanitizers find nothing in more arithmetic of the same kind, and take minutes over it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif
#define BERTH_SKIP_IF_INSTRUMENTED() \
  if (kInstrumented) GTEST_SKIP() << "checked without sanitizers"

TEST(SmolLm2, Float32ModeGivesTheOraclesIdsAndLogProbabilities) {
  BERTH_SKIP_IF_INSTRUMENTED();
  BERTH_REQUIRE_DEFAULT_MODEL(path);
  const Oracle oracle = ReadOracle();
  const std::unique_ptr<Model> model = OpenModel(path);
  const std::unique_ptr<Backend> backend = MakeSmolLm2(*model, KvDtype::kFloat32);
  ASSERT_NE(backend, nullptr);
  double worst = 0;
  for (const OracleCase& c : oracle.cases) {
    const std::vector<Following> got = FeedGreedy(*backend, c, 12);
    ASSERT_EQ(got.size(), c.steps.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].top.front().token_id, c.greedy[i]) << c.name << " step " << i;
      for (const auto& [id, logprob] : c.steps[i].top) {
        const auto found = std::find_if(got[i].top.begin(), got[i].top.end(),
                                        [&, wanted = id](const TopLogprob& top) { return top.token_id == wanted; });
        ASSERT_NE(found, got[i].top.end()) << c.name << " step " << i << " id " << id;
        worst = std::max(worst, std::abs(found->logprob - logprob));
      }
    }
  }
  EXPECT_LE(worst, 0.002);
}

TEST(SmolLm2, Float32ModeGivesTheOraclesPerplexity) {
  BERTH_SKIP_IF_INSTRUMENTED();
  BERTH_REQUIRE_DEFAULT_MODEL(path);
  const Oracle oracle = ReadOracle();
  const std::unique_ptr<Model> model = OpenModel(path);
  const std::unique_ptr<Backend> backend = MakeSmolLm2(*model, KvDtype::kFloat32);
  ASSERT_NE(backend, nullptr);
  const double p = Perplexity(*backend, oracle);
  EXPECT_NEAR(p, oracle.perplexity, 1e-4 * oracle.perplexity);
}

struct Bounds {
  KvDtype kv_dtype;
  double mean;  // of the log-probabilities' distances from the oracle's
  double p99;
  double largest;
  double margin;      // where another token is the likeliest, the oracle's first two lie closer than this
  double perplexity;  // relative
};

class SmolLm2DefaultMode : public testing::TestWithParam<Bounds> {};

TEST_P(SmolLm2DefaultMode, StaysCloseToTheOracle) {
  BERTH_SKIP_IF_INSTRUMENTED();
  BERTH_REQUIRE_DEFAULT_MODEL(path);
  const Oracle oracle = ReadOracle();
  const std::unique_ptr<Model> model = OpenModel(path);
  const std::unique_ptr<Backend> backend = MakeSmolLm2(*model, GetParam().kv_dtype);
  ASSERT_NE(backend, nullptr);
  std::vector<double> differences;
  double margin = 0;
  for (const OracleCase& c : oracle.cases) {
    const std::vector<Following> got = FeedGreedy(*backend, c, 1);
    ASSERT_EQ(got.size(), c.steps.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const OracleStep& step = c.steps[i];
      // The id fed next is the oracle's first.
      differences.push_back(std::abs(got[i].logprob - step.top[0].second));
      if (got[i].top.front().token_id != c.greedy[i])
        margin = std::max(margin, step.top[0].second - step.top[1].second);
    }
  }
  std::sort(differences.begin(), differences.end());
  double sum = 0;
  for (const double difference : differences) sum += difference;
  EXPECT_LE(sum / static_cast<double>(differences.size()), GetParam().mean);
  EXPECT_LE(differences[differences.size() * 99 / 100], GetParam().p99);
  EXPECT_LE(differences.back(), GetParam().largest);
  EXPECT_LT(margin, GetParam().margin);
}

TEST_P(SmolLm2DefaultMode, KeepsThePerplexity) {
  BERTH_SKIP_IF_INSTRUMENTED();
  BERTH_REQUIRE_DEFAULT_MODEL(path);
  const Oracle oracle = ReadOracle();
  const std::unique_ptr<Model> model = OpenModel(path);
  const std::unique_ptr<Backend> backend = MakeSmolLm2(*model, GetParam().kv_dtype);
  ASSERT_NE(backend, nullptr);
  const double p = Perplexity(*backend, oracle);
  EXPECT_NEAR(p, oracle.perplexity, GetParam().perplexity * oracle.perplexity);
}

constexpr Bounds kBounds[] = {
    {.kv_dtype = KvDtype::kBf16, .mean = 0.037, .p99 = 0.19, .largest = 0.36, .margin = 0.3, .perplexity = 5e-3},
    {.kv_dtype = KvDtype::kInt8, .mean = 0.04, .p99 = 0.23, .largest = 0.36, .margin = 0.36, .perplexity = 5e-3},
};

INSTANTIATE_TEST_SUITE_P(All, SmolLm2DefaultMode, testing::ValuesIn(kBounds),
                         [](const auto& test) { return std::string(KvDtypeName(test.param.kv_dtype)); });

}  // namespace
}  // namespace berth::test
