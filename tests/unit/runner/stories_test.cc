// A trained model's greedy text, as the model's own reference program wrote it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend_harness.h"
#include "fakes/test_data.h"
#include "stories_text.h"

namespace berth::test {
namespace {

class StoriesText : public testing::TestWithParam<const char*> {};

TEST_P(StoriesText, GreedyTokensSpellTheReferenceText) {
  BERTH_REQUIRE_SHARED(path, std::string("models/stories260K-") + GetParam() + ".gguf");
  BERTH_REQUIRE_SHARED(greedy, "models/stories260K-greedy.txt");
  const std::unique_ptr<Model> model = OpenModel(path);
  ASSERT_NE(model, nullptr);
  const absl::StatusOr<const GgufArray*> tokens =
      model->file->GetArray("tokenizer.ggml.tokens", GgufValueType::kString);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  for (const ComputeMode compute : {ComputeMode::kFloat32, ComputeMode::kDefault}) {
    CpuBackendOptions options;
    options.threads = 2;
    options.compute = compute;
    options.kv_dtype = compute == ComputeMode::kFloat32 ? KvDtype::kFloat32 : KvDtype::kBf16;
    options.pool = {8, 16};
    const std::unique_ptr<Backend> backend = MakeBackend(*model, options);
    for (const StoriesPrompt& prompt : StoriesPrompts()) {
      const std::vector<TokenId> ids = Generate(*backend, prompt.ids, 129);
      const std::string text = TextOf(**tokens, {ids.begin() + 1, ids.end()});
      EXPECT_EQ(text, ExpectedText(ReadFile(greedy), prompt.text));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoriesText, testing::Values("f32", "f16"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace berth::test
