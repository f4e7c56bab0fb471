#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/gguf_parser.h"

namespace berth {
namespace {

// Sizes past any model that exists, so that products of them stay far inside 63 bits.
constexpr std::int64_t kMaxLayers = 512;
constexpr std::int64_t kMaxHidden = 65536;
constexpr std::int64_t kMaxFfn = 1 << 20;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kMaxExperts = 65536;
constexpr std::int64_t kMaxVocab = 1 << 22;
constexpr std::int64_t kMaxContextTokens = 1 << 24;
constexpr double kMaxRopeTheta = 1e12;
constexpr double kMaxRopeScale = 1e6;

// Keys that change what a llama-family model computes. Ignoring one would give fluent wrong answers.
constexpr const char* kKeysNotServed[] = {
    "attention.scale", "attention.clamp_kqv", "attn_logit_softcapping", "final_logit_softcapping", "embedding_scale",
    "residual_scale",  "logit_scale",
};

// Reads "<architecture>.<suffix>" keys. The first error sticks; after it values are the least allowed.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) {
    prefix_ += '.';
  }

  const absl::Status& status() const { return status_; }
  bool Has(const char* suffix) const { return file_.Has(Key(suffix)); }
  std::string Key(const char* suffix) const { return prefix_ + suffix; }

  void Fail(const absl::Status& status) { status_.Update(status); }
  void Fail(const std::string& what) { Fail(absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", what))); }
  void FailKey(const char* suffix, const std::string& what) {
    Fail(absl::StrCat("metadata key ", QuoteForMessage(Key(suffix)), " ", what));
  }

  std::int32_t Int(const char* suffix, std::int64_t max, std::int64_t min = 1) {
    return static_cast<std::int32_t>(Keep(file_.GetInt(Key(suffix), min, max), min));
  }
  std::int32_t IntOr(const char* suffix, std::int64_t max, std::int32_t absent, std::int64_t min = 1) {
    return Has(suffix) ? Int(suffix, max, min) : absent;
  }

  // A number that some files give per layer, as an array: served where all layers agree.
  std::int32_t PerLayer(const char* suffix, std::int64_t max) {
    for (const GgufValueType type : {GgufValueType::kU32, GgufValueType::kI32}) {
      if (absl::StatusOr<const GgufArray*> array = file_.GetArray(Key(suffix), type); array.ok()) {
        return Uniform(suffix, **array, max);
      }
    }
    return Int(suffix, max);
  }

  // In (0, max]. As float it must not vanish either.
  float PositiveFloat(const char* suffix, double max) {
    const double value = Keep(file_.GetFloat(Key(suffix)), 1.0);
    if (!(value > 0.0 && value <= max && static_cast<float>(value) > 0.0F)) {
      FailKey(suffix, absl::StrCat("is ", value, ", outside (0, ", max, "]"));
    }
    return static_cast<float>(value);
  }
  float PositiveFloatOr(const char* suffix, double max, float absent) {
    return Has(suffix) ? PositiveFloat(suffix, max) : absent;
  }

  bool BoolOr(const char* suffix, bool absent) {
    return Has(suffix) ? Keep(file_.GetBool(Key(suffix)), absent) : absent;
  }
  std::string_view StringOr(const char* suffix, std::string_view absent) {
    return Has(suffix) ? Keep(file_.GetString(Key(suffix)), absent) : absent;
  }

 private:
  template <typename T>
  T Keep(const absl::StatusOr<T>& value, T otherwise) {
    if (value.ok()) return *value;
    Fail(value.status());
    return otherwise;
  }

  std::int32_t Uniform(const char* suffix, const GgufArray& array, std::int64_t max) {
    const std::int64_t first = array.size() > 0 ? array.IntAt(0) : 0;
    for (std::int64_t i = 1; i < array.size(); ++i) {
      if (array.IntAt(i) == first) continue;
      FailKey(suffix, absl::StrCat("differs between layers (", first, ", then ", array.IntAt(i), " at layer ", i,
                                   "), which is not served"));
      return 1;
    }
    if (first >= 1 && first <= max) return static_cast<std::int32_t>(first);
    FailKey(suffix, absl::StrCat("is an array of ", first, ", outside 1 to ", max));
    return 1;
  }

  const GgufFile& file_;
  std::string prefix_;
  absl::Status status_;
};

void ReadSizes(ConfigReader& reader, ModelConfig* config) {
  config->layers = reader.Int("block_count", kMaxLayers);
  config->hidden = reader.Int("embedding_length", kMaxHidden);
  config->ffn = reader.PerLayer("feed_forward_length", kMaxFfn);
  config->context_tokens = reader.Int("context_length", kMaxContextTokens);
  // Within the window a sliding window changes nothing: what is served is the part of the context where it holds.
  const std::int32_t window = reader.IntOr("attention.sliding_window", kMaxContextTokens, config->context_tokens);
  config->context_tokens = std::min(config->context_tokens, window);
  config->norm_epsilon = reader.PositiveFloat("attention.layer_norm_rms_epsilon", 1.0);
}

void ReadHeads(ConfigReader& reader, ModelConfig* config) {
  config->heads = reader.PerLayer("attention.head_count", kMaxHeads);
  config->kv_heads =
      reader.Has("attention.head_count_kv") ? reader.PerLayer("attention.head_count_kv", kMaxHeads) : config->heads;
  if (config->heads % config->kv_heads != 0) {
    reader.FailKey("attention.head_count_kv",
                   absl::StrCat("is ", config->kv_heads, ", which does not divide the ", config->heads, " heads"));
  }
  if (!reader.Has("attention.key_length") && config->hidden % config->heads != 0) {
    reader.FailKey("attention.head_count", absl::StrCat("is ", config->heads, ", which does not divide the ",
                                                        config->hidden, " of 'embedding_length'"));
  }
  const std::int32_t split = config->hidden / config->heads;
  config->head_dim = reader.IntOr("attention.key_length", kMaxHeadDim, split);
  const std::int32_t value_length = reader.IntOr("attention.value_length", kMaxHeadDim, split);
  if (value_length != config->head_dim) {
    reader.Fail(absl::StrCat("keys of ", config->head_dim, " elements and values of ", value_length,
                             " per head: only equal lengths are served"));
  }
  if (config->head_dim < 2 || config->head_dim > kMaxHeadDim || config->head_dim % 2 != 0) {
    reader.Fail(absl::StrCat("heads of ", config->head_dim, " elements (", config->hidden, " in ", config->heads,
                             " heads): only even sizes from 2 to ", kMaxHeadDim, " are served"));
  }
}

void ReadRope(ConfigReader& reader, ModelConfig* config) {
  config->rope_pairing = RopePairing::kAdjacent;
  config->rope_dims = reader.IntOr("rope.dimension_count", kMaxHeadDim, config->head_dim);
  if (config->rope_dims % 2 != 0 || config->rope_dims > config->head_dim) {
    reader.FailKey("rope.dimension_count", absl::StrCat("is ", config->rope_dims, ", not an even number up to the ",
                                                        config->head_dim, " elements of a head"));
  }
  config->rope_theta = reader.PositiveFloatOr("rope.freq_base", kMaxRopeTheta, 10000.0F);
  const std::string_view scaling = reader.StringOr("rope.scaling.type", "linear");
  if (scaling != "linear" && scaling != "none") {
    reader.FailKey("rope.scaling.type", absl::StrCat("is ", QuoteForMessage(scaling),
                                                     ", which is not served; served: ", "'linear', 'none'"));
  }
  // The second name is what older files call the same factor.
  const float older = reader.PositiveFloatOr("rope.scale_linear", kMaxRopeScale, 1.0F);
  const float factor = reader.PositiveFloatOr("rope.scaling.factor", kMaxRopeScale, older);
  config->rope_scale = scaling == "linear" ? factor : 1.0F;
}

void RefuseOtherArithmetic(ConfigReader& reader) {
  if (const std::int32_t experts = reader.IntOr("expert_count", kMaxExperts, 0, 0); experts > 0) {
    reader.FailKey("expert_count", absl::StrCat("is ", experts, ": mixture-of-experts models are not served"));
  }
  if (!reader.BoolOr("attention.causal", true)) {
    reader.FailKey("attention.causal", "is false: only causal models are served");
  }
  for (const char* suffix : kKeysNotServed) {
    if (reader.Has(suffix)) reader.FailKey(suffix, "changes what the model computes and is not served");
  }
}

// The embedding decides the vocabulary: every id that can be fed or sampled is one of its rows.
void ReadVocabulary(const GgufFile& file, ConfigReader& reader, ModelConfig* config) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    reader.Fail(file.tensors().empty() ? "holds no tensors (a vocabulary without a model?)"
                                       : "tensor 'token_embd.weight' is missing");
    return;
  }
  if (embedding->cols() != config->hidden) {
    reader.Fail(absl::StrCat("tensor 'token_embd.weight' has rows of ", embedding->cols(), " elements, but ",
                             QuoteForMessage(reader.Key("embedding_length")), " is ", config->hidden));
  }
  if (embedding->rows() > kMaxVocab) {
    reader.Fail(absl::StrCat("tensor 'token_embd.weight' has ", embedding->rows(), " rows; at most ", kMaxVocab,
                             " are served"));
    return;
  }
  config->vocab_size = static_cast<std::int32_t>(embedding->rows());
  if (reader.IntOr("vocab_size", kMaxVocab, config->vocab_size) > config->vocab_size) {
    reader.FailKey("vocab_size", absl::StrCat("is more than the ", config->vocab_size, " rows of 'token_embd.weight'"));
  }
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  if (file.Has(kTokens)) {
    absl::StatusOr<const GgufArray*> tokens = file.GetArray(kTokens, GgufValueType::kString);
    if (!tokens.ok()) {
      reader.Fail(tokens.status());
    } else if ((*tokens)->size() > config->vocab_size) {
      reader.Fail(absl::StrCat("the tokenizer has ", (*tokens)->size(), " tokens, but 'token_embd.weight' only ",
                               config->vocab_size, " rows"));
    }
  }
  config->tied_embeddings = file.FindTensor("output.weight") == nullptr;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  absl::StatusOr<std::string_view> architecture = file.GetString("general.architecture");
  if (!architecture.ok()) return architecture.status();
  if (*architecture != "llama") {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": architecture ", QuoteForMessage(*architecture),
                     " is not served; served: 'llama' (Llama 2 and 3, Mistral, SmolLM2)"));
  }
  ModelConfig config;
  config.architecture = std::string(*architecture);
  if (file.Has("general.name")) {
    absl::StatusOr<std::string_view> name = file.GetString("general.name");
    if (!name.ok()) return name.status();
    config.name = std::string(*name);
  }
  ConfigReader reader(file, config.architecture);
  ReadSizes(reader, &config);
  ReadHeads(reader, &config);
  ReadRope(reader, &config);
  RefuseOtherArithmetic(reader);
  ReadVocabulary(file, reader, &config);
  if (!reader.status().ok()) return reader.status();
  return config;
}

}  // namespace berth
