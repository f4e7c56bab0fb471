// The model's weights on the device: where each lies, and how it gets there from the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "kernels/params/quantized.h"
#include "model/model.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/memory_layout.h"

namespace berth {

// The weights of a matrix product, of one or several tensors with the same inputs. Tensors of 4, 5, 6 and 8 bits stay
// as they are where the kernels take their type and each tensor of the product has one: few tokens are multiplied with
// the codes themselves, more with what is made of them for the while. All others become bfloat16.
struct CudaProjection {
  struct Part {
    cuda::QuantizedMatrix matrix;
    std::int32_t first_output = 0;
  };

  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
  const std::uint16_t* dense = nullptr;  // [outputs, inputs] bfloat16, where there is one
  std::vector<Part> quantized;           // in order of their outputs; few rows each, so that their bfloat16 is small
};

// What is copied to the device: units one behind the other, each written by a function that may be called from any
// thread.
struct WeightCopy {
  std::byte* to = nullptr;
  std::int64_t units = 0;
  std::int64_t unit_bytes = 0;
  std::function<void(std::int64_t unit, std::byte* to)> write;
};

struct CudaWeights {
  struct Layer {
    const std::uint16_t* attn_norm = nullptr;
    CudaProjection qkv;
    CudaProjection attn_output;
    const std::uint16_t* ffn_norm = nullptr;
    CudaProjection gate_up;
    CudaProjection down;
  };

  std::vector<Layer> layers;
  const std::uint16_t* embedding = nullptr;  // [vocabulary, hidden] bfloat16
  const std::uint16_t* output_norm = nullptr;
  CudaProjection head;
  const float* cosines = nullptr;  // [context_tokens, rope_pairs]
  const float* sines = nullptr;

  // The largest number of weights that a quantised part has: what its bfloat16 takes.
  std::int64_t dequantized_elements = 0;
};

// Lays the weights out and lists the copies that fill them; these read `model` when they are made.
CudaWeights LayOutWeights(const Model& model, const CudaShape& shape, MemoryLayout& layout,
                          std::vector<WeightCopy>* copies);

}  // namespace berth
