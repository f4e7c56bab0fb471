#include "runner/cuda/cuda_weights.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "kernels/cpu/dequantize.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/quantized_layout.h"
#include "runner/rope_angles.h"
#include "runner/weight_format.h"

namespace berth {
namespace {

// Values dequantised at a time: whole blocks of every format.
constexpr std::int64_t kRunValues = 256;
// 64 MiB of bfloat16.
constexpr std::int64_t kPartElements = std::int64_t{1} << 25;

std::optional<cuda::QuantizedType> QuantizedTypeOf(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kQ4_0:
      return cuda::QuantizedType::kQ4_0;
    case GgufTensorType::kQ4_1:
      return cuda::QuantizedType::kQ4_1;
    case GgufTensorType::kQ8_0:
      return cuda::QuantizedType::kQ8_0;
    case GgufTensorType::kQ6_K:
      return cuda::QuantizedType::kQ6_K;
    default:
      return std::nullopt;
  }
}

// A row of a tensor as bfloat16, then zeros up to `width` values.
void WriteDenseRow(const GgufTensor& tensor, std::int64_t row, std::int64_t width, std::byte* to) {
  const cpu::OpsKernels& ops = cpu::GetOpsKernels(cpu::DetectCpuLevel());
  const cpu::WeightFormat format = WeightFormatOf(tensor.type);
  const std::byte* from = tensor.data.data() + static_cast<std::size_t>(row) * cpu::RowBytes(format, tensor.cols());
  auto* values = reinterpret_cast<std::uint16_t*>(to);
  float run[kRunValues];
  for (std::int64_t at = 0; at < tensor.cols(); at += kRunValues) {
    const std::int64_t count = std::min(kRunValues, tensor.cols() - at);
    cpu::Dequantize(format, from + cpu::RowBytes(format, at), count, run);
    ops.to_bf16(run, static_cast<std::int32_t>(count), values + at);
  }
  std::fill(values + tensor.cols(), values + width, std::uint16_t{0});
}

class Layouter {
 public:
  Layouter(const Model& model, const CudaShape& shape, MemoryLayout& layout, std::vector<WeightCopy>* copies)
      : model_(model), shape_(shape), layout_(layout), copies_(copies) {}

  CudaWeights LayOut() {
    CudaWeights weights;
    const ModelWeights& from = model_.weights;
    weights.embedding = Dense({from.token_embedding}, shape_.hidden, shape_.vocab_size);
    for (const LayerWeights& layer : from.layers) {
      CudaWeights::Layer& to = weights.layers.emplace_back();
      to.attn_norm = Vector(*layer.attn_norm);
      to.qkv = Projection({layer.q, layer.k, layer.v}, shape_.hidden, 0);
      to.attn_output = Projection({layer.attn_output}, shape_.q_width(), 0);
      to.ffn_norm = Vector(*layer.ffn_norm);
      to.gate_up = Projection({layer.ffn_gate, layer.ffn_up}, shape_.hidden, shape_.ffn);
      to.down = Projection({layer.ffn_down}, shape_.ffn, 0);
    }
    weights.output_norm = Vector(*from.output_norm);
    weights.head = Head(weights.embedding);
    Angles(&weights);
    weights.dequantized_elements = dequantized_elements_;
    return weights;
  }

 private:
  // Tensors below each other as bfloat16; each takes `rows_each` rows of `width`, the last ones zeros (0: its own).
  const std::uint16_t* Dense(std::initializer_list<const GgufTensor*> tensors, std::int64_t width,
                             std::int64_t rows_each) {
    std::int64_t rows = 0;
    for (const GgufTensor* tensor : tensors) rows += rows_each == 0 ? tensor->rows() : rows_each;
    auto* to = layout_.Take<std::uint16_t>(static_cast<std::size_t>(rows), static_cast<std::size_t>(width));
    const auto row_bytes = width * static_cast<std::int64_t>(sizeof(std::uint16_t));
    std::int64_t first = 0;
    for (const GgufTensor* tensor : tensors) {
      const std::int64_t taken = rows_each == 0 ? tensor->rows() : rows_each;
      copies_->push_back({At(to, first * row_bytes), taken, row_bytes, [=](std::int64_t row, std::byte* at) {
                            if (row < tensor->rows()) {
                              WriteDenseRow(*tensor, row, width, at);
                            } else {
                              std::memset(at, 0, static_cast<std::size_t>(row_bytes));
                            }
                          }});
      first += taken;
    }
    return to;
  }

  const std::uint16_t* Vector(const GgufTensor& tensor) { return Dense({&tensor}, tensor.cols(), 1); }

  CudaProjection Projection(std::initializer_list<const GgufTensor*> tensors, std::int32_t inputs,
                            std::int32_t rows_each) {
    CudaProjection projection;
    projection.inputs = inputs;
    bool quantized = true;
    for (const GgufTensor* tensor : tensors) {
      projection.outputs += rows_each == 0 ? static_cast<std::int32_t>(tensor->rows()) : rows_each;
      // Codes have no room for zeros that fill up a size.
      quantized = quantized && QuantizedTypeOf(tensor->type).has_value() && tensor->cols() == inputs &&
                  (rows_each == 0 || tensor->rows() == rows_each);
    }
    if (!quantized) {
      projection.dense = Dense(tensors, inputs, rows_each);
      return projection;
    }
    std::int32_t first_output = 0;
    for (const GgufTensor* tensor : tensors) {
      Quantized(*tensor, first_output, &projection.quantized);
      first_output += static_cast<std::int32_t>(tensor->rows());
    }
    return projection;
  }

  // The embedding is there as bfloat16 in any case. A tied head also has the codes, if there are any: every decode step
  // reads all of it.
  CudaProjection Head(const std::uint16_t* embedding) {
    const GgufTensor& tensor = *model_.weights.output;
    if (!model_.config.tied_embeddings) return Projection({&tensor}, shape_.hidden, 0);
    CudaProjection head;
    head.inputs = shape_.hidden;
    head.outputs = shape_.vocab_size;
    head.dense = embedding;
    const std::int64_t needed = dequantized_elements_;
    if (QuantizedTypeOf(tensor.type).has_value()) Quantized(tensor, 0, &head.quantized);
    dequantized_elements_ = needed;  // many tokens take the embedding
    return head;
  }

  void Quantized(const GgufTensor& tensor, std::int32_t first_output, std::vector<CudaProjection::Part>* parts) {
    const cuda::QuantizedType type = *QuantizedTypeOf(tensor.type);
    const auto rows = static_cast<std::int32_t>(tensor.rows());
    const auto cols = static_cast<std::int32_t>(tensor.cols());
    auto* to = layout_.Take<std::byte>(cuda::QuantizedBytes(type, rows, cols));
    const std::size_t file_row_bytes = cpu::RowBytes(WeightFormatOf(tensor.type), cols);
    copies_->push_back({to, CeilDiv(rows, cuda::kBandRows), cuda::BandBytes(type, cols),
                        [=, from = tensor.data.data()](std::int64_t band, std::byte* at) {
                          const auto first = static_cast<std::int32_t>(band * cuda::kBandRows);
                          cuda::PackQuantized(type, from + static_cast<std::size_t>(first) * file_row_bytes,
                                              std::min(cuda::kBandRows, rows - first), cols, at);
                        }});
    // Whole bands.
    const auto most =
        static_cast<std::int32_t>(std::max<std::int64_t>(kPartElements / cols / cuda::kBandRows, 1) * cuda::kBandRows);
    for (std::int32_t first = 0; first < rows; first += most) {
      const std::int32_t count = std::min(most, rows - first);
      const auto skipped = static_cast<std::int64_t>(cuda::QuantizedBytes(type, first, cols));
      parts->push_back({{At(to, skipped), count, cols, type}, first_output + first});
      dequantized_elements_ = std::max(dequantized_elements_, std::int64_t{count} * cols);
    }
  }

  void Angles(CudaWeights* weights) {
    const auto positions = static_cast<std::size_t>(shape_.context_tokens);
    const auto pairs = static_cast<std::size_t>(shape_.rope_pairs);
    auto* cosines = layout_.Take<float>(positions, pairs);
    auto* sines = layout_.Take<float>(positions, pairs);
    weights->cosines = cosines;
    weights->sines = sines;
    const auto angles = std::make_shared<const RopeAngles>(model_);
    const auto row_bytes = static_cast<std::int64_t>(pairs * sizeof(float));
    for (const bool is_sine : {false, true}) {
      copies_->push_back({At(is_sine ? sines : cosines, 0), shape_.context_tokens, row_bytes,
                          [=](std::int64_t position, std::byte* at) {
                            std::vector<float> other(pairs);
                            auto* row = reinterpret_cast<float*>(at);
                            angles->Fill(static_cast<std::int32_t>(position), is_sine ? other.data() : row,
                                         is_sine ? row : other.data());
                          }});
    }
  }

  template <typename T>
  static std::byte* At(T* base, std::int64_t bytes) {
    return base == nullptr ? nullptr : reinterpret_cast<std::byte*>(base) + bytes;
  }

  const Model& model_;
  const CudaShape& shape_;
  MemoryLayout& layout_;
  std::vector<WeightCopy>* const copies_;
  std::int64_t dequantized_elements_ = 0;
};

}  // namespace

CudaWeights LayOutWeights(const Model& model, const CudaShape& shape, MemoryLayout& layout,
                          std::vector<WeightCopy>* copies) {
  return Layouter(model, shape, layout, copies).LayOut();
}

}  // namespace berth
