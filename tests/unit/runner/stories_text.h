// The greedy text of stories260K, as the model's own reference program wrote it, and how a backend comes to it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "backend_harness.h"
#include "model/gguf.h"

namespace berth::test {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space in SentencePiece pieces

// Pieces in a row, spaces for marks; bytes spelled out as <0x0A> stand for themselves.
inline std::string TextOf(const GgufArray& tokens, const std::vector<TokenId>& ids) {
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
inline std::string ExpectedText(const std::string& file, const std::string& prompt) {
  const std::string header = "### prompt=[" + prompt + "] t=0 n=128\n";
  const std::size_t begin = file.find(header);
  EXPECT_NE(begin, std::string::npos);
  const std::size_t from = begin + header.size();
  const std::string text = file.substr(from, file.find("\n###", from) - from);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// Ids drawn greedily until `total` tokens are there, the prompt's included; the last is never fed.
inline std::vector<TokenId> Generate(Backend& backend, std::vector<TokenId> ids, std::size_t total) {
  FedSequence sequence{ids, Blocks(static_cast<std::int64_t>(total) - 1, 16), 0};
  StepUnderTest step;
  while (sequence.ids.size() < total) {
    step.Feed(&sequence, sequence.left(), 1, 1);
    sequence.ids.push_back(step.Run(backend).front().front().top.front().token_id);
  }
  return sequence.ids;
}

struct StoriesPrompt {
  const char* text;
  std::vector<TokenId> ids;
};

inline std::vector<StoriesPrompt> StoriesPrompts() {
  return {{"", {1}}, {"Once upon a time", {1, 403, 407, 261, 378}}};
}

}  // namespace berth::test
