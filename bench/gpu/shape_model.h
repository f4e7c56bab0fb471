// A model of a shape without weights, for backends that fill theirs with noise.
#pragma once

#include <deque>

#include "model/model.h"
#include "model_shapes.h"

namespace berth::bench {

class ShapeModel {
 public:
  ShapeModel(const ModelShape& shape, std::int32_t context_tokens);
  ShapeModel(const ShapeModel&) = delete;
  ShapeModel& operator=(const ShapeModel&) = delete;

  const Model& model() const { return model_; }
  // Of the matrices that a step reads whole, as bfloat16: all but the embedding, which it reads too where it is tied.
  std::int64_t step_weight_bytes() const;

 private:
  const GgufTensor* Tensor(std::int64_t rows, std::int64_t cols);

  std::deque<GgufTensor> tensors_;  // that the model points to; without data
  Model model_;
};

}  // namespace berth::bench
