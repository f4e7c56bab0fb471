#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/spm.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace berth {
namespace {

bool HidesItsSpelling(TokenType type) { return type == TokenType::kControl || type == TokenType::kUnknown; }

std::string SentencePiecePiece(const std::string& spelling, TokenType type) {
  if (type == TokenType::kByte) return std::string(1, static_cast<char>(ByteOfSpelling(spelling)));
  std::string piece;
  std::size_t i = 0;
  while (i < spelling.size()) {
    if (spelling.compare(i, kSpaceSpelling.size(), kSpaceSpelling) == 0) {
      piece += ' ';
      i += kSpaceSpelling.size();
    } else {
      piece += spelling[i++];
    }
  }
  return piece;
}

// The bytes of each token.
std::vector<std::string> MakePieces(const Vocabulary& vocabulary) {
  std::vector<std::string> pieces;
  pieces.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& spelling = vocabulary.tokens[id];
    const TokenType type = vocabulary.types[id];
    if (HidesItsSpelling(type)) {
      pieces.emplace_back();
    } else if (vocabulary.model == VocabularyModel::kSentencePiece) {
      pieces.push_back(SentencePiecePiece(spelling, type));
    } else if (type == TokenType::kUserDefined) {
      pieces.push_back(spelling);  // added to the vocabulary as it is, never spelled in the byte alphabet
    } else {
      pieces.push_back(UnspellBytes(spelling));
    }
  }
  return pieces;
}

// GGUF does not say which tokens swallow the white space after them; these are the ones of Phi-3's own tokenizer that
// do not (llama.cpp, src/llama-vocab.cpp, has the same list).
bool StripsRight(const Vocabulary& vocabulary, const std::string& spelling) {
  return vocabulary.specials_strip_right && spelling != "<unk>" && spelling != "<s>" && spelling != "<|endoftext|>";
}

AddedTokens MakeAddedTokens(const Vocabulary& vocabulary) {
  AddedTokens added;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& spelling = vocabulary.tokens[i];
    const bool is_special = HidesItsSpelling(vocabulary.types[i]);
    if (spelling.empty() || !(is_special || vocabulary.types[i] == TokenType::kUserDefined)) continue;
    added.Add(spelling, {static_cast<TokenId>(i), is_special, StripsRight(vocabulary, spelling)});
  }
  return added;
}

// The most text that one token can stand for.
std::int32_t LongestTextBytes(const Vocabulary& vocabulary, const std::vector<std::string>& pieces) {
  std::size_t longest = 1;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    longest =
        std::max(longest, HidesItsSpelling(vocabulary.types[id]) ? vocabulary.tokens[id].size() : pieces[id].size());
  }
  return static_cast<std::int32_t>(longest) * (vocabulary.normalize_nfc ? kMaxNfcShrink : 1);
}

std::string TokenPlace(std::size_t id, std::string_view spelling) {
  return "token " + std::to_string(id) + " ('" + std::string(spelling) + "')";
}

absl::Status CheckTokens(const Vocabulary& vocabulary) {
  if (vocabulary.tokens.empty()) return absl::InvalidArgumentError("the vocabulary has no tokens");
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& spelling = vocabulary.tokens[id];
    if (FindInvalidUtf8(spelling)) {
      return absl::InvalidArgumentError("token " + std::to_string(id) + " is not valid UTF-8");
    }
    if (vocabulary.types[id] != TokenType::kByte) continue;
    if (vocabulary.model != VocabularyModel::kSentencePiece) {
      return absl::InvalidArgumentError(TokenPlace(id, spelling) +
                                        " has type byte, which only SentencePiece vocabularies have");
    }
    if (ByteOfSpelling(spelling) < 0) {
      return absl::InvalidArgumentError(TokenPlace(id, spelling) + " has type byte but is not spelled like <0x0A>");
    }
  }
  return absl::OkStatus();
}

// Bytes that the vocabulary must be able to encode. SentencePiece: all of them, or a rare character would be lost or
// become <unk>. Byte-level: printable ASCII, or the tokens are not in the byte alphabet at all; real vocabularies lack
// bytes that their training text never had (SmolLM2 lacks 21).
template <typename Model>
absl::Status CheckByteTokens(const Model& model, int first, int last) {
  for (int byte = first; byte <= last; ++byte) {
    if (model.ByteToken(static_cast<unsigned char>(byte)) == kNoToken) {
      return absl::InvalidArgumentError("the vocabulary has no token for byte " + std::to_string(byte) +
                                        "; such a vocabulary is not served");
    }
  }
  return absl::OkStatus();
}

// REQUIRES: the vocabulary and pieces stay where they are. Refuses as CreateTokenizer says.
absl::StatusOr<std::unique_ptr<TextModel>> MakeTextModel(const Vocabulary& vocabulary,
                                                         const std::vector<std::string>& pieces) {
  if (vocabulary.model == VocabularyModel::kSentencePiece) {
    auto model = std::make_unique<SentencePieceBpe>(vocabulary, vocabulary.tokens);
    if (absl::Status status = CheckByteTokens(*model, 0, 255); !status.ok()) return status;
    return model;
  }
  auto model = std::make_unique<ByteLevelBpe>(vocabulary, pieces);
  if (absl::Status status = CheckByteTokens(*model, ' ', '~'); !status.ok()) return status;
  return model;
}

class VocabularyTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(Vocabulary vocabulary) {
    std::unique_ptr<VocabularyTokenizer> tokenizer(new VocabularyTokenizer(std::move(vocabulary)));
    absl::StatusOr<std::unique_ptr<TextModel>> model = MakeTextModel(tokenizer->vocabulary_, tokenizer->pieces_);
    if (!model.ok()) return model.status();
    tokenizer->text_model_ = *std::move(model);
    // Copied or resolved by the text model; only spellings are asked for from here on.
    tokenizer->vocabulary_.merges = {};
    tokenizer->vocabulary_.scores = {};
    return tokenizer;
  }

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override;

  std::string_view Piece(TokenId id) const override { return pieces_[Index(id)]; }
  std::string_view Spelling(TokenId id) const override { return vocabulary_.tokens[Index(id)]; }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(pieces_.size()); }
  TokenId bos() const override { return vocabulary_.bos; }
  std::span<const TokenId> eos() const override { return vocabulary_.eos; }
  bool adds_bos() const override { return vocabulary_.add_bos && vocabulary_.bos != kNoToken; }
  bool strips_leading_space() const override {
    return vocabulary_.model == VocabularyModel::kSentencePiece && vocabulary_.add_space_prefix;
  }
  std::int32_t longest_piece_bytes() const override { return longest_text_bytes_; }
  std::string description() const override { return vocabulary_.description; }

 private:
  explicit VocabularyTokenizer(Vocabulary vocabulary)
      : vocabulary_(std::move(vocabulary)),
        pieces_(MakePieces(vocabulary_)),
        longest_text_bytes_(LongestTextBytes(vocabulary_, pieces_)),
        added_tokens_(MakeAddedTokens(vocabulary_)) {
    std::vector<TokenId>& eos = vocabulary_.eos;
    std::sort(eos.begin(), eos.end());
    eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  }

  std::size_t Index(TokenId id) const {
    BERTH_CHECK(id >= 0 && id < vocab_size());
    return static_cast<std::size_t>(id);
  }

  Vocabulary vocabulary_;
  std::vector<std::string> pieces_;
  std::int32_t longest_text_bytes_;
  AddedTokens added_tokens_;
  std::unique_ptr<TextModel> text_model_;  // views vocabulary_.tokens and pieces_
};

absl::StatusOr<std::vector<TokenId>> VocabularyTokenizer::Encode(std::string_view text,
                                                                 const EncodeOptions& options) const {
  // Positions are 32 bits wide; a SentencePiece space grows to 3 bytes, normal form C can triple a text.
  constexpr std::size_t kMaxBytes = std::numeric_limits<std::int32_t>::max() / 4;
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError("the text has " + std::to_string(text.size()) + " bytes; at most " +
                                      std::to_string(kMaxBytes) + " can be tokenized");
  }
  if (const std::optional<std::size_t> offset = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError("the text is not valid UTF-8 at byte " + std::to_string(*offset));
  }

  std::vector<TokenId> ids;
  for (std::size_t position = 0; position < text.size();) {
    const std::optional<AddedTokens::Match> match = added_tokens_.Find(text, position, options.parse_special);
    const std::size_t plain_end = match ? match->begin : text.size();
    if (plain_end > position) text_model_->Encode(text.substr(position, plain_end - position), &ids);
    if (!match) break;
    ids.push_back(match->id);
    position = match->end;
  }
  const bool has_bos = !ids.empty() && ids.front() == bos();
  if (options.add_bos && adds_bos() && !has_bos) ids.insert(ids.begin(), bos());
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(Vocabulary vocabulary) {
  BERTH_CHECK(vocabulary.types.size() == vocabulary.tokens.size());
  BERTH_CHECK(vocabulary.model != VocabularyModel::kSentencePiece ||
              vocabulary.scores.size() == vocabulary.tokens.size());
  if (absl::Status status = CheckTokens(vocabulary); !status.ok()) return status;
  return VocabularyTokenizer::Create(std::move(vocabulary));
}

}  // namespace berth
