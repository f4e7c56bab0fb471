// RMSNorm, gates, the embedding and block copies.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "kernels/cpu/dequantize.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/guarded_array.h"
#include "kernels/cuda/op_registry/op_case.h"
#include "kernels/cuda/op_registry/values.h"
#include "kernels/cuda/rms_norm.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

constexpr double kCpuUnit = 1e-5;  // of a float32 result, relative

class RmsNormCase : public OpCase {
 public:
  RmsNormCase(int num_tokens, int hidden_size, bool residual)
      : num_tokens_(num_tokens),
        hidden_size_(hidden_size),
        has_residual_(residual),
        input_(RandomBf16(Size(num_tokens) * Size(hidden_size), 1, 2.0f)),
        residual_(RandomBf16(residual ? input_.size() : 0, 2)),
        weight_(RandomBf16(Size(hidden_size), 3)) {}

  std::vector<Expected> Oracle() const override {
    Expected output("output");
    Expected residual("residual");
    const std::vector<float> x = Input();
    for (std::size_t begin = 0; begin < x.size(); begin += Size(hidden_size_)) {
      double squares = 0;
      for (std::size_t i = begin; i < begin + Size(hidden_size_); ++i) squares += double{x[i]} * x[i];
      const double scale = 1 / std::sqrt(squares / hidden_size_ + double{kEpsilon});
      for (std::size_t i = begin; i < begin + Size(hidden_size_); ++i) {
        const double value = x[i] * scale * FromBf16(weight_[i - begin]);
        output.Add(value, Bf16Unit(value), kCpuUnit * std::abs(value));
        if (has_residual_) residual.Add(FromBf16(ToBf16(x[i])), 0);
      }
    }
    return {std::move(output), std::move(residual)};
  }

  std::optional<Outputs> OnCpu() const override {
    std::vector<float> x = Floats(input_);
    if (has_residual_) CpuOps().add(Floats(residual_).data(), static_cast<std::int32_t>(x.size()), x.data());
    const std::vector<float> weight = Floats(weight_);
    for (std::size_t begin = 0; begin < x.size(); begin += weight.size()) {
      CpuOps().rms_norm(x.data() + begin, weight.data(), kEpsilon, hidden_size_, x.data() + begin);
    }
    return Outputs{Doubles(x), {}};
  }

  // In place where there is a residual.
  Outputs OnCuda() const override {
    const GuardedArray<std::uint16_t> input(input_);
    const GuardedArray<std::uint16_t> residual(residual_);
    const DeviceArray<std::uint16_t> weight(weight_);
    const GuardedArray<std::uint16_t> output(input_.size());
    EXPECT_EQ(LaunchRmsNorm({.input = input.data(),
                             .residual = has_residual_ ? residual.data() : nullptr,
                             .weight = weight.data(),
                             .output = has_residual_ ? input.data() : output.data(),
                             .num_tokens = num_tokens_,
                             .hidden_size = hidden_size_,
                             .epsilon = kEpsilon},
                            nullptr),
              cudaSuccess);
    return {Doubles(has_residual_ ? input.Read() : output.Read()), Doubles(residual.Read())};
  }

 private:
  static constexpr float kEpsilon = 1e-5f;

  std::vector<float> Input() const {
    std::vector<float> x = Floats(input_);
    for (std::size_t i = 0; i < residual_.size(); ++i) x[i] += static_cast<float>(FromBf16(residual_[i]));
    return x;
  }

  int num_tokens_;
  int hidden_size_;
  bool has_residual_;
  std::vector<std::uint16_t> input_;
  std::vector<std::uint16_t> residual_;
  std::vector<std::uint16_t> weight_;
};

class GateCase : public OpCase {
 public:
  GateCase(Activation activation, std::size_t size)
      : activation_(activation), size_(size), gate_up_(RandomBf16(kTokens * 2 * size, 11, 4.0f)) {}

  std::vector<Expected> Oracle() const override {
    Expected output("output");
    for (std::size_t i = 0; i < kTokens * size_; ++i) {
      const double gate = FromBf16(gate_up_[GateAt(i)]);
      const double up = FromBf16(gate_up_[GateAt(i) + size_]);
      const double value = Activated(gate) * up;
      // 1 + tanh is all cancellation in float64 where the gate is far below zero.
      output.Add(value, Bf16Unit(value) + 1e-13 * std::abs(gate * up));
      if (activation_ == Activation::kSilu) output.cpu_bounds.push_back(kCpuUnit * std::abs(value));
    }
    return {std::move(output)};
  }

  std::optional<Outputs> OnCpu() const override {
    if (activation_ != Activation::kSilu) return std::nullopt;
    const std::vector<float> gate_up = Floats(gate_up_);
    std::vector<float> output(kTokens * size_);
    for (std::size_t token = 0; token < kTokens; ++token) {
      const float* gates = gate_up.data() + token * 2 * size_;
      CpuOps().swiglu(gates, gates + size_, static_cast<std::int32_t>(size_), output.data() + token * size_);
    }
    return Outputs{Doubles(output)};
  }

  Outputs OnCuda() const override {
    const DeviceArray<std::uint16_t> gate_up(gate_up_);
    const GuardedArray<std::uint16_t> output(kTokens * size_);
    EXPECT_EQ(LaunchGatedActivation({.gate_up = gate_up.data(),
                                     .output = output.data(),
                                     .num_tokens = static_cast<std::int32_t>(kTokens),
                                     .size = static_cast<std::int32_t>(size_),
                                     .activation = activation_},
                                    nullptr),
              cudaSuccess);
    return {Doubles(output.Read())};
  }

 private:
  static constexpr std::size_t kTokens = 3;

  std::size_t GateAt(std::size_t i) const { return i / size_ * 2 * size_ + i % size_; }
  double Activated(double x) const {
    if (activation_ == Activation::kSilu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }

  Activation activation_;
  std::size_t size_;
  std::vector<std::uint16_t> gate_up_;
};

class EmbeddingCase : public OpCase {
 public:
  explicit EmbeddingCase(std::size_t hidden_size)
      : hidden_size_(hidden_size), table_(RandomBf16(kVocabulary * hidden_size, 12)) {}

  std::vector<Expected> Oracle() const override {
    Expected output("output");
    for (std::size_t i = 0; i < ids_.size() * hidden_size_; ++i) {
      output.Add(FromBf16(table_[Size(ids_[i / hidden_size_]) * hidden_size_ + i % hidden_size_]), 0, 0);
    }
    return {std::move(output)};
  }

  std::optional<Outputs> OnCpu() const override {
    std::vector<float> output(ids_.size() * hidden_size_);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      cpu::Dequantize(cpu::WeightFormat::kBF16, table_.data() + Size(ids_[i]) * hidden_size_,
                      static_cast<std::int64_t>(hidden_size_), output.data() + i * hidden_size_);
    }
    return Outputs{Doubles(output)};
  }

  Outputs OnCuda() const override {
    const DeviceArray<std::uint16_t> table(table_);
    const DeviceArray<std::int32_t> ids(ids_);
    const GuardedArray<std::uint16_t> output(ids_.size() * hidden_size_);
    EXPECT_EQ(LaunchEmbedding({.token_ids = ids.data(),
                               .table = table.data(),
                               .output = output.data(),
                               .num_tokens = static_cast<std::int32_t>(ids_.size()),
                               .hidden_size = static_cast<std::int32_t>(hidden_size_)},
                              nullptr),
              cudaSuccess);
    return {Doubles(output.Read())};
  }

 private:
  static constexpr std::size_t kVocabulary = 10;

  std::size_t hidden_size_;
  std::vector<std::int32_t> ids_ = {3, 9, 0, 3};
  std::vector<std::uint16_t> table_;
};

// How the blocks of a pool lie: its parts (a layer's keys, its values, their scales) apart, or its blocks.
enum class PoolLayout { kByPart, kByBlock };

// From a pool whose parts lie apart to itself, as copy-on-write does it, or to another one, as a swap does.
class BlockCopiesCase : public OpCase {
 public:
  BlockCopiesCase(std::size_t part_bytes, std::optional<PoolLayout> other)
      : part_bytes_(part_bytes), other_(other), pool_(kParts * kBlocks * part_bytes) {
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  }

  std::vector<Expected> Oracle() const override {
    std::vector<std::uint8_t> destination = pool_;
    if (other_) std::fill(destination.begin(), destination.end(), std::uint8_t{0xff});
    for (std::size_t copy = 0; copy < from_.size(); ++copy) {
      for (std::size_t part = 0; part < kParts; ++part) {
        const auto source = pool_.begin() + Offset(PoolLayout::kByPart, part, from_[copy]);
        std::copy_n(source, part_bytes_,
                    destination.begin() + Offset(other_.value_or(PoolLayout::kByPart), part, to_[copy]));
      }
    }
    Expected output("pool");
    for (const std::uint8_t byte : destination) output.Add(byte, 0);
    return {std::move(output)};
  }

  Outputs OnCuda() const override {
    const GuardedArray<std::uint8_t> pool(pool_);
    const GuardedArray<std::uint8_t> other(pool_.size());
    const DeviceArray<std::int32_t> from(from_);
    const DeviceArray<std::int32_t> to(to_);
    EXPECT_EQ(LaunchBlockCopies({.from = from.data(),
                                 .to = to.data(),
                                 .source = Parts(pool, PoolLayout::kByPart),
                                 .destination = other_ ? Parts(other, *other_) : Parts(pool, PoolLayout::kByPart),
                                 .part_bytes = static_cast<std::int64_t>(part_bytes_),
                                 .num_parts = kParts,
                                 .num_copies = static_cast<std::int32_t>(from_.size())},
                                nullptr),
              cudaSuccess);
    const std::vector<std::uint8_t> after = pool.Read();
    EXPECT_TRUE(!other_ || after == pool_) << "the source has changed";
    const std::vector<std::uint8_t> result = other_ ? other.Read() : after;
    return {{result.begin(), result.end()}};
  }

 private:
  static constexpr std::size_t kParts = 3;
  static constexpr std::size_t kBlocks = 6;

  std::size_t PartStride(PoolLayout layout) const {
    return layout == PoolLayout::kByPart ? kBlocks * part_bytes_ : part_bytes_;
  }
  std::size_t BlockStride(PoolLayout layout) const {
    return layout == PoolLayout::kByPart ? part_bytes_ : kParts * part_bytes_;
  }
  std::ptrdiff_t Offset(PoolLayout layout, std::size_t part, std::int32_t block) const {
    return static_cast<std::ptrdiff_t>(part * PartStride(layout) + Size(block) * BlockStride(layout));
  }
  BlockParts Parts(const GuardedArray<std::uint8_t>& pool, PoolLayout layout) const {
    return {reinterpret_cast<std::byte*>(pool.data()), static_cast<std::int64_t>(PartStride(layout)),
            static_cast<std::int64_t>(BlockStride(layout))};
  }

  std::size_t part_bytes_;
  std::optional<PoolLayout> other_;
  std::vector<std::int32_t> from_ = {5, 0};
  std::vector<std::int32_t> to_ = {1, 4};
  std::vector<std::uint8_t> pool_;
};

}  // namespace

std::vector<OpEntry> ElementwiseCases() {
  std::vector<OpEntry> entries;
  const std::string bf16 = "one unit of bfloat16; CPU 1e-5 of the value";
  for (const auto& [tokens, hidden] :
       {std::pair{1, 8}, {3, 576}, {2, 1024}, {5, 264}, {1, 8192}, {2, 8264}, {1, 16384}}) {
    for (const bool residual : {false, true}) {
      const std::string name =
          std::to_string(tokens) + "x" + std::to_string(hidden) + (residual ? "_residual_in_place" : "");
      entries.push_back(MakeEntry<RmsNormCase>("rms_norm", name, bf16 + (residual ? "; residual exact" : ""), tokens,
                                               hidden, residual));
    }
  }
  for (const std::size_t size : {8u, 1536u, 2056u}) {
    const std::string name = "3x" + std::to_string(size);
    entries.push_back(MakeEntry<GateCase>("gate", name + "_silu", bf16, Activation::kSilu, size));
    entries.push_back(
        MakeEntry<GateCase>("gate", name + "_gelu_tanh", "one unit of bfloat16", Activation::kGeluTanh, size));
  }
  for (const std::size_t size : {8u, 576u, 2056u}) {
    entries.push_back(MakeEntry<EmbeddingCase>("embedding", "4x" + std::to_string(size), "exact", size));
  }
  // More in a part than a block of threads copies at once, and little.
  for (const std::size_t bytes : {4128u, 16u}) {
    const std::string name = std::to_string(bytes) + "_bytes_";
    const auto add = [&](const char* where, std::optional<PoolLayout> other) {
      entries.push_back(MakeEntry<BlockCopiesCase>("block_copies", name + where, "exact", bytes, other));
    };
    add("within_a_pool", std::nullopt);
    add("to_a_pool_like_it", PoolLayout::kByPart);
    add("to_a_pool_by_block", PoolLayout::kByBlock);
  }
  return entries;
}

}  // namespace berth::cuda
