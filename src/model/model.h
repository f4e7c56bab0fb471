// A model opened for running: the mapped file, its description and each weight by role.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/gguf.h"
#include "model/model_config.h"

namespace berth {

// Every pointer is non-null after Model::Open except where said, and every shape agrees with the ModelConfig.
// Matrices are [rows = outputs, cols = inputs]; norms are F32 vectors.
struct LayerWeights {
  const GgufTensor* attn_norm = nullptr;
  const GgufTensor* q = nullptr;
  const GgufTensor* k = nullptr;
  const GgufTensor* v = nullptr;
  const GgufTensor* attn_output = nullptr;
  const GgufTensor* ffn_norm = nullptr;
  const GgufTensor* ffn_gate = nullptr;
  const GgufTensor* ffn_up = nullptr;
  const GgufTensor* ffn_down = nullptr;
};

struct ModelWeights {
  const GgufTensor* token_embedding = nullptr;
  const GgufTensor* output_norm = nullptr;
  const GgufTensor* output = nullptr;        // = token_embedding when tied
  const GgufTensor* rope_factors = nullptr;  // may be null: per-pair divisors of the rotation frequency (Llama 3.1)
  std::vector<LayerWeights> layers;
};

// Immutable; thread-safe.
struct Model {
  std::unique_ptr<GgufFile> file;
  ModelConfig config;
  ModelWeights weights;

  std::int64_t parameters() const;  // elements of all tensors that are weights

  // Errors name the file and the tensor or key that is missing, misshapen or of a type not served.
  static absl::StatusOr<std::unique_ptr<Model>> Open(const std::string& path);
};

}  // namespace berth
