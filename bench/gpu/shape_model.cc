#include "shape_model.h"

namespace berth::bench {

ShapeModel::ShapeModel(const ModelShape& shape, std::int32_t context_tokens) {
  ModelConfig& config = model_.config;
  config.architecture = "llama";
  config.name = shape.name;
  config.layers = shape.layers;
  config.hidden = shape.hidden;
  config.heads = shape.q_heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.ffn = shape.feed_forward;
  config.vocab_size = shape.vocabulary;
  config.context_tokens = context_tokens;
  config.max_context_tokens = context_tokens;
  config.rope_dims = shape.head_dim;
  config.tied_embeddings = shape.tied_embeddings;

  ModelWeights& weights = model_.weights;
  weights.token_embedding = Tensor(shape.vocabulary, shape.hidden);
  weights.output_norm = Tensor(1, shape.hidden);
  weights.output = shape.tied_embeddings ? weights.token_embedding : Tensor(shape.vocabulary, shape.hidden);
  const std::int64_t q_width = std::int64_t{shape.q_heads} * shape.head_dim;
  const std::int64_t kv_width = std::int64_t{shape.kv_heads} * shape.head_dim;
  for (std::int32_t i = 0; i < shape.layers; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    layer.attn_norm = Tensor(1, shape.hidden);
    layer.q = Tensor(q_width, shape.hidden);
    layer.k = Tensor(kv_width, shape.hidden);
    layer.v = Tensor(kv_width, shape.hidden);
    layer.attn_output = Tensor(shape.hidden, q_width);
    layer.ffn_norm = Tensor(1, shape.hidden);
    layer.ffn_gate = Tensor(shape.feed_forward, shape.hidden);
    layer.ffn_up = Tensor(shape.feed_forward, shape.hidden);
    layer.ffn_down = Tensor(shape.hidden, shape.feed_forward);
  }
}

std::int64_t ShapeModel::step_weight_bytes() const {
  std::int64_t elements = 0;
  for (const GgufTensor& tensor : tensors_) elements += tensor.elements();
  if (!model_.config.tied_embeddings) elements -= model_.weights.token_embedding->elements();
  return 2 * elements;
}

const GgufTensor* ShapeModel::Tensor(std::int64_t rows, std::int64_t cols) {
  GgufTensor& tensor = tensors_.emplace_back();
  tensor.type = GgufTensorType::kBF16;
  tensor.dims = rows == 1 ? std::vector<std::int64_t>{cols} : std::vector<std::int64_t>{cols, rows};
  return &tensor;
}

}  // namespace berth::bench
