#include "tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"

namespace berth {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kAddBosKey = "tokenizer.ggml.add_bos_token";

// How converters write an id that the model does not have: -1 as an unsigned 32-bit number.
constexpr std::int64_t kNoIdInFile = 4294967295;

// What `pre` stands for; the file holds none of it.
struct PreTokenizerFacts {
  std::string_view pre;
  PreTokenizerKind kind;
  bool ignore_merges;
  bool normalize_nfc;
  bool add_bos;  // where the file does not say
};

constexpr std::array kPreTokenizers = {
    PreTokenizerFacts{"gpt-2", PreTokenizerKind::kGpt2, false, false, false},
    PreTokenizerFacts{"llama-bpe", PreTokenizerKind::kLlama3, true, false, true},
    PreTokenizerFacts{"llama3", PreTokenizerKind::kLlama3, true, false, true},
    PreTokenizerFacts{"llama-v3", PreTokenizerKind::kLlama3, true, false, true},
    PreTokenizerFacts{"qwen2", PreTokenizerKind::kQwen2, false, true, false},
    PreTokenizerFacts{"smollm", PreTokenizerKind::kSmolLm, false, false, false},
};

// Control tokens that end a text or a turn in the chat formats served. A file names one eos and seldom more, yet a chat
// model ends its turn with the format's own token and a base model its document with another: whichever is not known as
// an end is an answer that runs on to its length limit. Only control tokens count, since a normal token of such a
// spelling is text that a prompt may ask for. A token that opens something (<|im_start|>, <s>) or parts messages within
// a turn must not be here.
constexpr std::array<std::string_view, 8> kEndSpellings = {
    "</s>",             // Llama 1 and 2, Mistral
    "<|endoftext|>",    // GPT-2, Qwen, SmolLM, Phi-3: end of document
    "<|end_of_text|>",  // Llama 3: end of document
    "<|im_end|>",       // ChatML: end of turn
    "<|eot_id|>",       // Llama 3: end of turn
    "<|eom_id|>",       // Llama 3.1: end of a message that calls a tool, whose result the client must bring
    "<|end|>",          // Phi-3: end of turn
    "<end_of_turn>",    // Gemma: end of turn
};

absl::Status Refuse(const GgufFile& file, std::string_view key, const std::string& what) {
  return absl::InvalidArgumentError(file.path() + ": " + std::string(key) + ": " + what);
}

std::string PreTokenizerList() {
  std::string list;
  for (const PreTokenizerFacts& facts : kPreTokenizers) {
    if (!list.empty()) list += ", ";
    list += facts.pre;
  }
  return list;
}

absl::StatusOr<const PreTokenizerFacts*> FindPreTokenizer(const GgufFile& file) {
  if (!file.Has(kPreKey)) {
    return Refuse(file, kPreKey, "missing; a gpt2 vocabulary needs one of " + PreTokenizerList());
  }
  const absl::StatusOr<std::string_view> pre = file.GetString(kPreKey);
  if (!pre.ok()) return pre.status();
  for (const PreTokenizerFacts& facts : kPreTokenizers) {
    if (facts.pre == *pre) return &facts;
  }
  return Refuse(file, kPreKey, "unknown pre-tokenizer '" + std::string(*pre) + "'; served are " + PreTokenizerList());
}

absl::Status ReadTokens(const GgufFile& file, Vocabulary* vocabulary) {
  const auto tokens = file.GetArray(kTokensKey, GgufValueType::kString);
  if (!tokens.ok()) return tokens.status();
  const auto types = file.GetArray(kTypesKey, GgufValueType::kI32);
  if (!types.ok()) return types.status();
  const std::int64_t count = (*tokens)->size();
  if (count < 1 || count > kMaxVocabularyTokens) {
    return Refuse(file, kTokensKey,
                  std::to_string(count) + " tokens; must be 1 to " + std::to_string(kMaxVocabularyTokens));
  }
  if ((*types)->size() != count) {
    return Refuse(file, kTypesKey,
                  std::to_string((*types)->size()) + " types for " + std::to_string(count) + " tokens");
  }
  vocabulary->tokens.reserve(static_cast<std::size_t>(count));
  vocabulary->types.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string_view spelling = (*tokens)->StringAt(i);
    if (spelling.size() > kMaxTokenBytes) {
      return Refuse(file, kTokensKey,
                    "token " + std::to_string(i) + " has " + std::to_string(spelling.size()) + " bytes; at most " +
                        std::to_string(kMaxTokenBytes) + " are allowed");
    }
    const std::int64_t type = (*types)->IntAt(i);
    if (type < static_cast<int>(TokenType::kNormal) || type > static_cast<int>(TokenType::kByte)) {
      return Refuse(file, kTypesKey,
                    "token " + std::to_string(i) + " has type " + std::to_string(type) + "; must be 1 to 6");
    }
    vocabulary->tokens.emplace_back(spelling);
    vocabulary->types.push_back(static_cast<TokenType>(type));
  }
  return absl::OkStatus();
}

absl::Status ReadScores(const GgufFile& file, Vocabulary* vocabulary) {
  const auto scores = file.GetArray(kScoresKey, GgufValueType::kF32);
  if (!scores.ok()) return scores.status();
  const std::size_t count = vocabulary->tokens.size();
  if ((*scores)->size() != static_cast<std::int64_t>(count)) {
    return Refuse(file, kScoresKey,
                  std::to_string((*scores)->size()) + " scores for " + std::to_string(count) + " tokens");
  }
  vocabulary->scores.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double score = (*scores)->FloatAt(static_cast<std::int64_t>(i));
    if (!std::isfinite(score))
      return Refuse(file, kScoresKey, "the score of token " + std::to_string(i) + " is not finite");
    vocabulary->scores.push_back(static_cast<float>(score));
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const GgufFile& file, Vocabulary* vocabulary) {
  const auto merges = file.GetArray(kMergesKey, GgufValueType::kString);
  if (!merges.ok()) return merges.status();
  const std::int64_t count = (*merges)->size();
  if (count > kMaxMerges) {
    return Refuse(file, kMergesKey,
                  std::to_string(count) + " merges; at most " + std::to_string(kMaxMerges) + " are allowed");
  }
  vocabulary->merges.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // The byte alphabet has no space, so the one between the parts is the only one.
    const std::string_view merge = (*merges)->StringAt(i);
    const std::size_t space = merge.find(' ');
    if (space == 0 || space >= merge.size() - 1 || merge.find(' ', space + 1) != std::string_view::npos ||
        merge.size() > 2 * kMaxTokenBytes + 1) {
      return Refuse(file, kMergesKey, "merge " + std::to_string(i) + " is not two parts with one space between them");
    }
    vocabulary->merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return absl::OkStatus();
}

// kNoToken where the key is absent or says that there is none.
absl::StatusOr<TokenId> ReadTokenId(const GgufFile& file, std::string_view key, const Vocabulary& vocabulary) {
  if (!file.Has(key)) return kNoToken;
  const absl::StatusOr<std::int64_t> id = file.GetInt(key, 0, kNoIdInFile);
  if (!id.ok()) return id.status();
  if (*id == kNoIdInFile) return kNoToken;
  const auto count = static_cast<std::int64_t>(vocabulary.tokens.size());
  if (*id >= count) {
    return Refuse(file, key,
                  "id " + std::to_string(*id) + " is not below the vocabulary's " + std::to_string(count) + " tokens");
  }
  return static_cast<TokenId>(*id);
}

absl::Status ReadEndTokens(const GgufFile& file, Vocabulary* vocabulary) {
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const absl::StatusOr<TokenId> id = ReadTokenId(file, key, *vocabulary);
    if (!id.ok()) return id.status();
    if (*id != kNoToken) vocabulary->eos.push_back(*id);
  }
  for (std::size_t i = 0; i < vocabulary->tokens.size(); ++i) {
    if (vocabulary->types[i] == TokenType::kControl &&
        std::find(kEndSpellings.begin(), kEndSpellings.end(), vocabulary->tokens[i]) != kEndSpellings.end()) {
      vocabulary->eos.push_back(static_cast<TokenId>(i));
    }
  }
  return absl::OkStatus();
}

// `fallback`: what the model's own tokenizer does, where the file does not say.
absl::Status ReadBos(const GgufFile& file, bool fallback, Vocabulary* vocabulary) {
  const absl::StatusOr<TokenId> bos = ReadTokenId(file, "tokenizer.ggml.bos_token_id", *vocabulary);
  if (!bos.ok()) return bos.status();
  vocabulary->bos = *bos;
  vocabulary->add_bos = fallback && *bos != kNoToken;
  if (!file.Has(kAddBosKey)) return absl::OkStatus();
  const absl::StatusOr<bool> add_bos = file.GetBool(kAddBosKey);
  if (!add_bos.ok()) return add_bos.status();
  if (*add_bos && *bos == kNoToken)
    return Refuse(file, kAddBosKey, "true, but tokenizer.ggml.bos_token_id names no token");
  vocabulary->add_bos = *add_bos;
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const GgufFile& file, Vocabulary* vocabulary) {
  const absl::StatusOr<const PreTokenizerFacts*> facts = FindPreTokenizer(file);
  if (!facts.ok()) return facts.status();
  vocabulary->model = VocabularyModel::kByteLevelBpe;
  vocabulary->description = "gpt2/" + std::string((*facts)->pre);
  vocabulary->pre_tokenizer = (*facts)->kind;
  vocabulary->ignore_merges = (*facts)->ignore_merges;
  vocabulary->normalize_nfc = (*facts)->normalize_nfc;
  if (absl::Status status = ReadTokens(file, vocabulary); !status.ok()) return status;
  if (absl::Status status = ReadMerges(file, vocabulary); !status.ok()) return status;
  return ReadBos(file, (*facts)->add_bos, vocabulary);
}

absl::Status ReadSentencePiece(const GgufFile& file, Vocabulary* vocabulary) {
  if (file.Has(kPreKey)) {
    const absl::StatusOr<std::string_view> pre = file.GetString(kPreKey);
    if (!pre.ok()) return pre.status();
    if (*pre != "default") {
      return Refuse(file, kPreKey,
                    "unknown pre-tokenizer '" + std::string(*pre) + "'; a llama vocabulary has 'default' or none");
    }
  }
  vocabulary->model = VocabularyModel::kSentencePiece;
  vocabulary->description = "llama (SentencePiece)";
  if (file.Has("tokenizer.ggml.add_space_prefix")) {
    const absl::StatusOr<bool> add_space_prefix = file.GetBool("tokenizer.ggml.add_space_prefix");
    if (!add_space_prefix.ok()) return add_space_prefix.status();
    vocabulary->add_space_prefix = *add_space_prefix;
  }
  // Which tokens swallow white space is lost on the way into GGUF; the architecture is what is left to tell by.
  const absl::StatusOr<std::string_view> architecture = file.GetString("general.architecture");
  vocabulary->specials_strip_right = architecture.ok() && *architecture == "phi3";
  if (absl::Status status = ReadTokens(file, vocabulary); !status.ok()) return status;
  if (absl::Status status = ReadScores(file, vocabulary); !status.ok()) return status;
  return ReadBos(file, /*fallback=*/true, vocabulary);
}

}  // namespace

absl::StatusOr<Vocabulary> ReadGgufVocabulary(const GgufFile& file) {
  const absl::StatusOr<std::string_view> model = file.GetString(kModelKey);
  if (!model.ok()) return model.status();
  Vocabulary vocabulary;
  absl::Status status;
  if (*model == "gpt2") {
    status = ReadByteLevel(file, &vocabulary);
  } else if (*model == "llama") {
    status = ReadSentencePiece(file, &vocabulary);
  } else {
    status = Refuse(
        file, kModelKey,
        "unknown model '" + std::string(*model) + "'; served are gpt2 (byte-level BPE), llama (SentencePiece BPE)");
  }
  if (status.ok()) status = ReadEndTokens(file, &vocabulary);
  if (!status.ok()) return status;
  return vocabulary;
}

}  // namespace berth
