// A trained model's greedy text on the CUDA backend.
#include <string>

#include "../stories_text.h"
#include "cuda_fixture.h"
#include "fakes/test_data.h"

namespace berth::test {
namespace {

class CudaStories : public CudaBackendTest, public testing::WithParamInterface<const char*> {};

TEST_P(CudaStories, GreedyTokensSpellTheReferenceText) {
  BERTH_REQUIRE_SHARED(path, std::string("models/stories260K-") + GetParam() + ".gguf");
  BERTH_REQUIRE_SHARED(greedy, "models/stories260K-greedy.txt");
  const std::unique_ptr<Model> model = OpenModel(path);
  ASSERT_NE(model, nullptr);
  const absl::StatusOr<const GgufArray*> tokens =
      model->file->GetArray("tokenizer.ggml.tokens", GgufValueType::kString);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const std::unique_ptr<Backend> backend = Make(*model, Options());
  ASSERT_NE(backend, nullptr);
  for (const StoriesPrompt& prompt : StoriesPrompts()) {
    const std::vector<TokenId> ids = Generate(*backend, prompt.ids, 129);
    const std::string text = TextOf(**tokens, {ids.begin() + 1, ids.end()});
    EXPECT_EQ(text, ExpectedText(ReadFile(greedy), prompt.text));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaStories, testing::Values("f32", "f16"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace berth::test
