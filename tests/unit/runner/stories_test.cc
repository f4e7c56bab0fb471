// A trained model's greedy text, as the model's own reference program wrote it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "backend_harness.h"
#include "fakes/test_data.h"

namespace berth::test {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space in SentencePiece pieces

// Pieces in a row, spaces for marks; bytes spelled out as <0x0A> stand for themselves.
std::string TextOf(const GgufArray& tokens, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) {
    std::string piece(tokens.StringAt(id));
    if (piece.size() == 6 && piece.starts_with("<0x")) {
      piece = std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    }
    for (std::size_t at = 0; (at = piece.find(kSpaceMark, at)) != std::string::npos; ++at) {
      piece.replace(at, kSpaceMark.size(), " ");
    }
    text += piece;
  }
  return text.substr(text.find_first_not_of(' '));
}

// The reference file's text for one prompt.
std::string ExpectedText(const std::string& file, const std::string& prompt) {
  const std::string header = "### prompt=[" + prompt + "] t=0 n=128\n";
  const std::size_t begin = file.find(header);
  EXPECT_NE(begin, std::string::npos);
  const std::size_t from = begin + header.size();
  const std::string text = file.substr(from, file.find("\n###", from) - from);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// Ids drawn greedily until `total` tokens are there, the prompt's included; the last is never fed.
std::vector<TokenId> Generate(Backend& backend, std::vector<TokenId> ids, std::size_t total) {
  FedSequence sequence{ids, Blocks(static_cast<std::int64_t>(total) - 1, 16), 0};
  StepUnderTest step;
  while (sequence.ids.size() < total) {
    step.Feed(&sequence, sequence.left(), 1, 1);
    sequence.ids.push_back(step.Run(backend).front().front().top.front().token_id);
  }
  return sequence.ids;
}

struct Prompt {
  const char* text;
  std::vector<TokenId> ids;
};

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
    for (const Prompt& prompt : {Prompt{"", {1}}, Prompt{"Once upon a time", {1, 403, 407, 261, 378}}}) {
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
