#include "model/model.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/gguf_parser.h"

namespace berth {
namespace {

// Takes tensors by name, checked; what nobody took at the end has no place in the model. The first error sticks.
class WeightFinder {
 public:
  explicit WeightFinder(const GgufFile& file) : file_(file) {}

  const absl::Status& status() const { return status_; }

  const GgufTensor* Matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    const GgufTensor* tensor = Take(name);
    if (tensor == nullptr) return nullptr;
    // Writers drop trailing dimensions of 1: a matrix of one row is stored as a vector.
    const bool is_matrix = tensor->dims.size() == 2 || (rows == 1 && tensor->dims.size() == 1);
    if (!is_matrix || tensor->rows() != rows || tensor->cols() != cols)
      FailShape(*tensor, absl::StrCat(cols, "x", rows));
    return tensor;
  }

  const GgufTensor* Vector(const std::string& name, std::int64_t elements) {
    const GgufTensor* tensor = Take(name);
    if (tensor == nullptr) return nullptr;
    if (tensor->dims.size() != 1 || tensor->cols() != elements) FailShape(*tensor, absl::StrCat(elements));
    if (tensor->type != GgufTensorType::kF32) {
      Fail(name, absl::StrCat("is of type ", GgufTensorTypeName(tensor->type), "; only F32 is served here"));
    }
    return tensor;
  }

  bool Has(std::string_view name) const { return file_.FindTensor(name) != nullptr; }

  void RefuseTheRest() {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!taken_.contains(&tensor))
        Fail(tensor.name, "has no place in a llama model; leaving it out would change its answers");
    }
  }

  void Fail(std::string_view name, const std::string& what) {
    status_.Update(
        absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor ", QuoteForMessage(name), " ", what)));
  }

 private:
  const GgufTensor* Take(const std::string& name) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) Fail(name, "is missing");
    taken_.insert(tensor);
    return tensor;
  }

  void FailShape(const GgufTensor& tensor, const std::string& wanted) {
    std::string found;
    for (const std::int64_t dim : tensor.dims) absl::StrAppend(&found, found.empty() ? "" : "x", dim);
    Fail(tensor.name, absl::StrCat("has the shape ", found, "; the metadata asks for ", wanted));
  }

  const GgufFile& file_;
  std::set<const GgufTensor*> taken_;
  absl::Status status_;
};

LayerWeights FindLayer(WeightFinder& finder, const ModelConfig& config, int layer) {
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  const std::int64_t q_rows = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.kv_heads} * config.head_dim;
  LayerWeights weights;
  weights.attn_norm = finder.Vector(prefix + "attn_norm.weight", config.hidden);
  weights.q = finder.Matrix(prefix + "attn_q.weight", q_rows, config.hidden);
  weights.k = finder.Matrix(prefix + "attn_k.weight", kv_rows, config.hidden);
  weights.v = finder.Matrix(prefix + "attn_v.weight", kv_rows, config.hidden);
  weights.attn_output = finder.Matrix(prefix + "attn_output.weight", config.hidden, q_rows);
  weights.ffn_norm = finder.Vector(prefix + "ffn_norm.weight", config.hidden);
  weights.ffn_gate = finder.Matrix(prefix + "ffn_gate.weight", config.ffn, config.hidden);
  weights.ffn_up = finder.Matrix(prefix + "ffn_up.weight", config.ffn, config.hidden);
  weights.ffn_down = finder.Matrix(prefix + "ffn_down.weight", config.hidden, config.ffn);
  return weights;
}

// Divisors: a zero or a NaN among them would spread to every logit.
const GgufTensor* FindRopeFactors(WeightFinder& finder, const ModelConfig& config) {
  const std::string name = "rope_freqs.weight";
  if (!finder.Has(name)) return nullptr;
  const GgufTensor* factors = finder.Vector(name, config.rope_dims / 2);
  if (!finder.status().ok()) return factors;
  for (std::int64_t i = 0; i < factors->cols(); ++i) {
    float factor = 0.0F;
    std::memcpy(&factor, factors->data.data() + static_cast<std::size_t>(i) * sizeof(float), sizeof(float));
    if (!std::isfinite(factor) || factor <= 0.0F) {
      finder.Fail(name, absl::StrCat("element ", i, " is ", factor, ", not a positive number"));
    }
  }
  return factors;
}

absl::StatusOr<ModelWeights> FindWeights(const GgufFile& file, const ModelConfig& config) {
  WeightFinder finder(file);
  ModelWeights weights;
  weights.token_embedding = finder.Matrix("token_embd.weight", config.vocab_size, config.hidden);
  weights.output_norm = finder.Vector("output_norm.weight", config.hidden);
  weights.output = config.tied_embeddings ? weights.token_embedding
                                          : finder.Matrix("output.weight", config.vocab_size, config.hidden);
  // Grows with what is found: the layers claimed are only believed as their tensors turn up.
  for (int layer = 0; layer < config.layers && finder.status().ok(); ++layer) {
    weights.layers.push_back(FindLayer(finder, config, layer));
  }
  weights.rope_factors = FindRopeFactors(finder, config);
  finder.RefuseTheRest();
  if (!finder.status().ok()) return finder.status();
  return weights;
}

}  // namespace

std::int64_t Model::parameters() const {
  std::int64_t total = weights.token_embedding->elements() + weights.output_norm->elements();
  if (!config.tied_embeddings) total += weights.output->elements();
  for (const LayerWeights& layer : weights.layers) {
    for (const GgufTensor* tensor : {layer.attn_norm, layer.q, layer.k, layer.v, layer.attn_output, layer.ffn_norm,
                                     layer.ffn_gate, layer.ffn_up, layer.ffn_down}) {
      total += tensor->elements();
    }
  }
  return total;
}

absl::StatusOr<std::unique_ptr<Model>> Model::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<ModelConfig> config = ReadModelConfig(**file);
  if (!config.ok()) return config.status();
  absl::StatusOr<ModelWeights> weights = FindWeights(**file, *config);
  if (!weights.ok()) return weights.status();
  return std::make_unique<Model>(Model{*std::move(file), *std::move(config), *std::move(weights)});
}

}  // namespace berth
