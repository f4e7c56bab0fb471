// Reads a vocabulary from a GGUF file's tokenizer.ggml.* keys.
#pragma once

#include "absl/status/statusor.h"
#include "model/gguf.h"
#include "tokenizer/vocabulary.h"

namespace berth {

// What a file may hold at most; the largest public vocabularies have about 262,000 tokens, and tokens of up to 256
// bytes.
inline constexpr std::int64_t kMaxVocabularyTokens = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxMerges = std::int64_t{1} << 22;
inline constexpr std::size_t kMaxTokenBytes = 1024;

// Errors name the file and the key. An unknown model or pre-tokenizer is refused with the list of those served: GGUF
// does not carry the rules themselves, and a guess gives wrong tokens without any sign of it.
absl::StatusOr<Vocabulary> ReadGgufVocabulary(const GgufFile& file);

}  // namespace berth
