// Quantised weights: as bfloat16, and multiplied.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>

#include "kernels/aligned_bytes.h"
#include "kernels/cpu/dequantize.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/guarded_array.h"
#include "kernels/cuda/op_registry/op_case.h"
#include "kernels/cuda/op_registry/values.h"
#include "kernels/cuda/quantized.h"
#include "kernels/cuda/quantized_layout.h"
#include "kernels/weight_data.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

struct MatrixShape {
  QuantizedType type;
  int rows;
  int cols;
};

// A matrix as a file has it, and on the device.
class Weights {
 public:
  explicit Weights(const MatrixShape& shape) : shape_(shape) {
    std::mt19937 rng(3);
    stored_ = test::RandomWeights(FileFormatOf(shape.type), shape.rows, shape.cols, test::Scales::kTypical, rng);
    packed_.resize(QuantizedBytes(shape.type, shape.rows, shape.cols));
    PackQuantized(shape.type, stored_.bytes.data(), shape.rows, shape.cols, packed_.data());
  }

  const MatrixShape& shape() const { return shape_; }
  const test::StoredWeights& stored() const { return stored_; }
  const std::vector<std::byte>& packed() const { return packed_; }
  QuantizedMatrix At(const std::byte* device) const {
    return {.data = device, .rows = shape_.rows, .cols = shape_.cols, .type = shape_.type};
  }

 private:
  MatrixShape shape_;
  test::StoredWeights stored_;
  std::vector<std::byte> packed_;
};

class DequantizeCase : public OpCase {
 public:
  explicit DequantizeCase(const MatrixShape& shape) : weights_(shape) {}

  std::vector<Expected> Oracle() const override {
    Expected output("output");
    const test::StoredWeights& stored = weights_.stored();
    for (std::size_t i = 0; i < stored.values.size(); ++i) {
      // Half a unit for each rounding: to float32, where the formula has two terms of their sum's magnitude, to
      // bfloat16.
      const double float_error = stored.magnitudes[i] * 0x1p-23;
      output.Add(stored.values[i], std::abs(stored.values[i]) * 0x1p-8 + float_error, float_error);
    }
    return {std::move(output)};
  }

  std::optional<Outputs> OnCpu() const override { return Outputs{Doubles(Floats())}; }

  Outputs OnCuda() const override {
    const DeviceArray<std::byte> packed(weights_.packed());
    const GuardedArray<std::uint16_t> output(weights_.stored().values.size());
    EXPECT_EQ(LaunchDequantize({.matrix = weights_.At(packed.data()), .output = output.data()}, nullptr), cudaSuccess);
    const std::vector<std::uint16_t> results = output.Read();
    const std::vector<float> on_cpu = Floats();
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i], ToBf16(on_cpu[i])) << "the CPU's value rounded, element " << i;
    }
    return {Doubles(results)};
  }

 private:
  std::vector<float> Floats() const {
    std::vector<float> values(weights_.stored().values.size());
    cpu::Dequantize(weights_.stored().format, weights_.stored().bytes.data(), static_cast<std::int64_t>(values.size()),
                    values.data());
    return values;
  }

  Weights weights_;
};

class QuantizedMatmulCase : public OpCase {
 public:
  QuantizedMatmulCase(const MatrixShape& shape, int num_tokens, bool output_is_float)
      : weights_(shape),
        num_tokens_(num_tokens),
        output_is_float_(output_is_float),
        input_(RandomBf16(Size(num_tokens) * Size(shape.cols), 4)) {}

  std::vector<Expected> Oracle() const override {
    Expected output("output");
    for (std::size_t token = 0; token < Size(num_tokens_); ++token) {
      for (std::size_t row = 0; row < Rows(); ++row) {
        const Product product = Multiply(token, row);
        const double sums = (weights_.shape().cols / 32 + 32) * product.magnitude * 0x1p-23;
        output.Add(product.sum, sums + (output_is_float_ ? 0 : Bf16Unit(product.sum)), sums + product.rounded_input);
      }
    }
    return {std::move(output)};
  }

  std::optional<Outputs> OnCpu() const override {
    const cpu::MatMulKernels& kernels = cpu::GetMatMulKernels(cpu::DetectCpuLevel());
    const test::StoredWeights& stored = weights_.stored();
    const cpu::PackedKind kind = cpu::ChoosePackedKind(stored.format, false);
    const std::int32_t cols = weights_.shape().cols;
    const std::int32_t rows = weights_.shape().rows;
    test::AlignedBytes packed(cpu::PackedBytes(kind, rows, cols));
    cpu::PackPanels(stored.format, stored.bytes.data(), kind, rows, cols, 0, cpu::NumPanels(rows), packed.data());
    const std::size_t activation_bytes = cpu::ActivationBytes(kind, cols);
    test::AlignedBytes activations(activation_bytes * Size(num_tokens_));
    const std::vector<float> input = Floats(input_);
    for (std::size_t token = 0; token < Size(num_tokens_); ++token) {
      kernels.prepare_row(kind, input.data() + token * Size(cols), cols, activations.data() + token * activation_bytes);
    }
    std::vector<float> output(Size(num_tokens_) * Rows());
    kernels.matmul({.kind = kind, .n = rows, .k = cols, .data = packed.data()}, activations.data(), num_tokens_,
                   output.data(), rows, 0, cpu::NumPanels(rows));
    return Outputs{Doubles(output)};
  }

  Outputs OnCuda() const override { return {output_is_float_ ? Launch<float>() : Launch<std::uint16_t>()}; }

 private:
  static constexpr std::size_t kGap = 3;  // elements behind each token's output

  struct Product {
    double sum = 0;
    double magnitude = 0;
    double rounded_input = 0;  // what rounding each 32 inputs to int8 may change
  };

  std::size_t Rows() const { return Size(weights_.shape().rows); }

  Product Multiply(std::size_t token, std::size_t row) const {
    constexpr std::size_t kBlock = 32;
    const std::size_t cols = Size(weights_.shape().cols);
    const double* values = weights_.stored().values.data() + row * cols;
    const double* magnitudes = weights_.stored().magnitudes.data() + row * cols;
    Product product;
    for (std::size_t begin = 0; begin < cols; begin += kBlock) {
      double highest = 0;
      double weight = 0;
      for (std::size_t col = begin; col < begin + kBlock; ++col) {
        const double x = FromBf16(input_[token * cols + col]);
        product.sum += x * values[col];
        product.magnitude += std::abs(x) * magnitudes[col];
        weight += magnitudes[col];
        highest = std::max(highest, std::abs(x));
      }
      product.rounded_input += weight * highest / 254 * 1.01;
    }
    return product;
  }

  // Tokens one after the other, without what lies between them and must be as it was.
  template <typename Element>
  std::vector<double> Launch() const {
    const std::size_t stride = Rows() + kGap;
    const DeviceArray<std::byte> packed(weights_.packed());
    const DeviceArray<std::uint16_t> input(input_);
    constexpr Element kUnwritten{0x1234};
    const GuardedArray<Element> output(std::vector<Element>(Size(num_tokens_) * stride, kUnwritten));
    EXPECT_EQ(LaunchQuantizedMatmul({.matrix = weights_.At(packed.data()),
                                     .input = input.data(),
                                     .output = output.data(),
                                     .output_stride = static_cast<std::int64_t>(stride),
                                     .num_tokens = num_tokens_,
                                     .output_is_float = output_is_float_},
                                    nullptr),
              cudaSuccess);
    const std::vector<Element> stored = output.Read();
    std::vector<Element> results;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (i % stride < Rows()) {
        results.push_back(stored[i]);
      } else {
        EXPECT_EQ(stored[i], kUnwritten) << "behind token " << i / stride;
      }
    }
    return Doubles(results);
  }

  Weights weights_;
  int num_tokens_;
  bool output_is_float_;
  std::vector<std::uint16_t> input_;
};

}  // namespace

std::vector<OpEntry> QuantizedCases() {
  std::vector<OpEntry> entries;
  for (const MatrixShape& shape :
       {MatrixShape{QuantizedType::kQ4_0, 40, 576}, MatrixShape{QuantizedType::kQ4_0, 1, 32},
        MatrixShape{QuantizedType::kQ4_1, 40, 576}, MatrixShape{QuantizedType::kQ4_1, 33, 64},
        MatrixShape{QuantizedType::kQ8_0, 40, 576}, MatrixShape{QuantizedType::kQ8_0, 16, 2112},
        MatrixShape{QuantizedType::kQ6_K, 40, 768}, MatrixShape{QuantizedType::kQ6_K, 7, 256}}) {
    const std::string name = std::string(test::FormatName(FileFormatOf(shape.type))) + "_" +
                             std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
    entries.push_back(MakeEntry<DequantizeCase>("dequantize", name, "the CPU's value rounded once", shape));
    const std::string bound = "(cols/32 + 32) 2^-23 of the sum of magnitudes; CPU + int8 inputs";
    for (const auto& [tokens, is_float] : {std::pair{1, true}, {5, false}, {kQuantizedMatmulTokens, true}}) {
      entries.push_back(MakeEntry<QuantizedMatmulCase>(
          "quantized_matmul", name + "_tokens" + std::to_string(tokens) + (is_float ? "_float" : "_bf16"),
          bound + (is_float ? "" : "; + one unit of bfloat16"), shape, tokens, is_float));
    }
  }
  return entries;
}

}  // namespace berth::cuda
