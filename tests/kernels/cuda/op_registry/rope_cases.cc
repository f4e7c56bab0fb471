// RoPE with the write of keys and values into the paged cache.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/guarded_array.h"
#include "kernels/cuda/op_registry/op_case.h"
#include "kernels/cuda/op_registry/values.h"
#include "kernels/cuda/rope_kv_write.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

struct RopeShape {
  int num_q_heads;
  int num_kv_heads;
  int head_dim;
  int rotary_pairs;
  RopePairs pairs;
  KvElement element;
};

constexpr int kBlockTokens = 16;
constexpr int kBlocks = 5;
constexpr int kPositions = 100;
constexpr double kRotation = 1e-5;  // of two products in float32

// Keys or values of the cache, of either type; what is never written is all ones.
struct CacheSide {
  explicit CacheSide(std::size_t rows, std::size_t head_dim)
      : bf16(rows * head_dim, 0xffff), codes(rows * head_dim, -1), scales(rows, 0xffff) {}
  std::vector<std::uint16_t> bf16;
  std::vector<std::int8_t> codes;
  std::vector<std::uint16_t> scales;
};

class RopeCase : public OpCase {
 public:
  explicit RopeCase(const RopeShape& shape)
      : shape_(shape), qkv_(RandomBf16(positions_.size() * Size(Heads() * shape.head_dim), 7, 3.0f)) {
    for (int position = 0; position < kPositions; ++position) {
      for (int pair = 0; pair < shape_.rotary_pairs; ++pair) {
        const double angle = position * std::pow(10000.0, -static_cast<double>(pair) / shape_.rotary_pairs);
        cosines_.push_back(static_cast<float>(std::cos(angle)));
        sines_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  std::vector<Expected> Oracle() const override {
    Expected queries("qkv");
    for (std::size_t token = 0; token < positions_.size(); ++token) {
      for (int head = 0; head < Heads(); ++head) {
        const bool is_query = head < shape_.num_q_heads;
        const std::vector<double> rotated = Rotated(token, head);
        for (std::size_t i = 0; i < rotated.size(); ++i) {
          if (is_query) {
            queries.Add(rotated[i], Bf16Unit(rotated[i]) + kRotation, kRotation);
          } else {
            queries.Add(FromBf16(qkv_[HeadAt(token, head) + i]), 0, 0);
          }
        }
      }
    }
    std::vector<Expected> outputs = {std::move(queries)};
    for (const bool is_key : {true, false}) ExpectStored(is_key, &outputs);
    return outputs;
  }

  std::optional<Outputs> OnCpu() const override {
    std::vector<float> qkv = Floats(qkv_);
    CacheSide keys(CacheRows(), Size(shape_.head_dim));
    CacheSide values = keys;
    const auto rotate = shape_.pairs == RopePairs::kAdjacent ? CpuOps().rope_adjacent : CpuOps().rope_halves;
    for (std::size_t token = 0; token < positions_.size(); ++token) {
      const std::size_t angle = Size(positions_[token]) * Size(shape_.rotary_pairs);
      const int rotated = shape_.num_q_heads + shape_.num_kv_heads;
      std::vector<float> row(qkv.begin() + static_cast<std::ptrdiff_t>(HeadAt(token, 0)),
                             qkv.begin() + static_cast<std::ptrdiff_t>(HeadAt(token + 1, 0)));
      rotate(row.data(), rotated, shape_.head_dim, shape_.rotary_pairs, cosines_.data() + angle, sines_.data() + angle);
      std::copy_n(row.begin(), shape_.num_q_heads * shape_.head_dim,
                  qkv.begin() + static_cast<std::ptrdiff_t>(HeadAt(token, 0)));
      if (slots_[token] < 0) continue;
      for (int head = 0; head < 2 * shape_.num_kv_heads; ++head) {
        StoreOnCpu(row.data() + (shape_.num_q_heads + head) * shape_.head_dim,
                   CacheRow(token, head % shape_.num_kv_heads), head < shape_.num_kv_heads ? &keys : &values);
      }
    }
    Outputs outputs = {Doubles(qkv)};
    for (const CacheSide* side : {&keys, &values}) AddStored(*side, &outputs);
    return outputs;
  }

  Outputs OnCuda() const override {
    const bool int8 = shape_.element == KvElement::kInt8;
    const GuardedArray<std::uint16_t> qkv(qkv_);
    const DeviceArray<std::int32_t> positions(positions_);
    const DeviceArray<std::int64_t> slots(slots_);
    const DeviceArray<float> cosines(cosines_);
    const DeviceArray<float> sines(sines_);
    const std::size_t elements = CacheRows() * Size(shape_.head_dim);
    const GuardedArray<std::uint16_t> bf16[2] = {GuardedArray<std::uint16_t>(elements),
                                                 GuardedArray<std::uint16_t>(elements)};
    const GuardedArray<std::int8_t> codes[2] = {GuardedArray<std::int8_t>(elements),
                                                GuardedArray<std::int8_t>(elements)};
    const GuardedArray<std::uint16_t> scales[2] = {GuardedArray<std::uint16_t>(CacheRows()),
                                                   GuardedArray<std::uint16_t>(CacheRows())};
    const auto elements_of = [&](int side) -> void* {
      return int8 ? static_cast<void*>(codes[side].data()) : bf16[side].data();
    };
    const std::int64_t block_rows = std::int64_t{shape_.num_kv_heads} * kBlockTokens;
    EXPECT_EQ(LaunchRopeKvWrite({.qkv = qkv.data(),
                                 .positions = positions.data(),
                                 .slots = slots.data(),
                                 .cosines = cosines.data(),
                                 .sines = sines.data(),
                                 .cache = {.keys = elements_of(0),
                                           .values = elements_of(1),
                                           .key_scales = scales[0].data(),
                                           .value_scales = scales[1].data(),
                                           .block_stride = block_rows * shape_.head_dim,
                                           .scale_block_stride = block_rows,
                                           .num_kv_heads = shape_.num_kv_heads,
                                           .head_dim = shape_.head_dim,
                                           .block_tokens = kBlockTokens,
                                           .element = shape_.element},
                                 .num_tokens = static_cast<std::int32_t>(positions_.size()),
                                 .num_q_heads = shape_.num_q_heads,
                                 .rotary_pairs = shape_.rotary_pairs,
                                 .pairs = shape_.pairs},
                                nullptr),
              cudaSuccess);
    Outputs outputs = {Doubles(qkv.Read())};
    for (int side = 0; side < 2; ++side) {
      CacheSide read(0, 0);
      read.bf16 = bf16[side].Read();
      read.codes = codes[side].Read();
      read.scales = scales[side].Read();
      AddStored(read, &outputs);
    }
    return outputs;
  }

 private:
  int Heads() const { return shape_.num_q_heads + 2 * shape_.num_kv_heads; }
  std::size_t HeadAt(std::size_t token, int head) const {
    return (token * Size(Heads()) + Size(head)) * Size(shape_.head_dim);
  }
  std::size_t CacheRows() const { return Size(kBlocks * shape_.num_kv_heads * kBlockTokens); }
  std::size_t CacheRow(std::size_t token, int kv_head) const {
    const std::int64_t slot = slots_[token];
    return Size((slot / kBlockTokens * shape_.num_kv_heads + kv_head) * kBlockTokens + slot % kBlockTokens);
  }

  // The head after the rotation.
  std::vector<double> Rotated(std::size_t token, int head) const {
    std::vector<double> x(Size(shape_.head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = FromBf16(qkv_[HeadAt(token, head) + i]);
    if (head >= shape_.num_q_heads + shape_.num_kv_heads) return x;
    std::vector<double> result = x;
    const std::size_t pairs = Size(shape_.rotary_pairs);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::size_t first = shape_.pairs == RopePairs::kAdjacent ? 2 * pair : pair;
      const std::size_t second = shape_.pairs == RopePairs::kAdjacent ? first + 1 : pair + pairs;
      const std::size_t angle = Size(positions_[token]) * pairs + pair;
      result[first] = x[first] * cosines_[angle] - x[second] * sines_[angle];
      result[second] = x[first] * sines_[angle] + x[second] * cosines_[angle];
    }
    return result;
  }

  // Elements as numbers, and the scales of int8, of the whole cache: a row without a token is as it was.
  void ExpectStored(bool is_key, std::vector<Expected>* outputs) const {
    const std::size_t dim = Size(shape_.head_dim);
    const double unwritten = std::nan("");
    Expected elements(is_key ? "keys" : "values");
    elements.values.assign(CacheRows() * dim, unwritten);
    elements.cuda_bounds.assign(CacheRows() * dim, 0);
    elements.cpu_bounds = elements.cuda_bounds;
    Expected scales(elements.name + "' scales");
    if (shape_.element == KvElement::kInt8) {
      scales.values.assign(CacheRows(), unwritten);
      scales.cuda_bounds.assign(CacheRows(), 0);
      scales.cpu_bounds = scales.cuda_bounds;
    }
    for (std::size_t token = 0; token < positions_.size(); ++token) {
      for (int head = 0; slots_[token] >= 0 && head < shape_.num_kv_heads; ++head) {
        const std::size_t row = CacheRow(token, head);
        const std::vector<double> x = Rotated(token, shape_.num_q_heads + (is_key ? 0 : shape_.num_kv_heads) + head);
        double highest = 0;
        for (const double value : x) highest = std::max(highest, std::abs(value));
        if (shape_.element == KvElement::kInt8) {
          // Rounded up to a float16: up to 2^-10 above.
          scales.values[row] = highest / 127 * (1 + 0x1p-11);
          scales.cuda_bounds[row] = scales.cpu_bounds[row] = highest / 127 * (0x1p-11 + 1e-6);
        }
        for (std::size_t i = 0; i < dim; ++i) {
          elements.values[row * dim + i] = x[i];
          const double half_step = highest / 127 * (1 + 0x1p-10) / 2;
          const double bound = shape_.element == KvElement::kInt8 ? half_step : Bf16Unit(x[i]);
          elements.cuda_bounds[row * dim + i] = elements.cpu_bounds[row * dim + i] = bound + kRotation;
        }
      }
    }
    outputs->push_back(std::move(elements));
    outputs->push_back(std::move(scales));
  }

  void StoreOnCpu(const float* head, std::size_t row, CacheSide* side) const {
    const std::size_t at = row * Size(shape_.head_dim);
    if (shape_.element == KvElement::kBf16) {
      CpuOps().to_bf16(head, shape_.head_dim, side->bf16.data() + at);
    } else {
      CpuOps().to_int8(head, shape_.head_dim, side->codes.data() + at, side->scales.data() + row);
    }
  }

  void AddStored(const CacheSide& side, Outputs* outputs) const {
    if (shape_.element == KvElement::kBf16) {
      outputs->push_back(Doubles(side.bf16));
      outputs->emplace_back();
      return;
    }
    std::vector<double> scales;
    for (const std::uint16_t scale : side.scales) scales.push_back(cpu::HalfToFloat(scale));
    std::vector<double> elements;
    for (std::size_t i = 0; i < side.codes.size(); ++i) {
      const std::size_t row = i / Size(shape_.head_dim);
      EXPECT_TRUE(side.scales[row] != 0xffff || side.codes[i] == -1) << "codes without a scale, row " << row;
      elements.push_back(side.codes[i] * scales[row]);
    }
    outputs->push_back(std::move(elements));
    outputs->push_back(std::move(scales));
  }

  RopeShape shape_;
  std::vector<std::int32_t> positions_ = {0, 1, 17, 99, 3, 50};
  std::vector<std::int64_t> slots_ = {0, 16 * 4 + 15, 33, 7, 16 * 2 + 8, -1};
  std::vector<float> cosines_;
  std::vector<float> sines_;
  std::vector<std::uint16_t> qkv_;
};

}  // namespace

std::vector<OpEntry> RopeCases() {
  std::vector<OpEntry> entries;
  for (const RopeShape& shape : {
           RopeShape{8, 4, 8, 4, RopePairs::kAdjacent, KvElement::kBf16},
           RopeShape{8, 4, 8, 4, RopePairs::kHalves, KvElement::kInt8},
           RopeShape{9, 3, 64, 32, RopePairs::kHalves, KvElement::kBf16},
           RopeShape{9, 3, 64, 32, RopePairs::kHalves, KvElement::kInt8},
           RopeShape{4, 4, 80, 16, RopePairs::kHalves, KvElement::kBf16},  // the rest passes unrotated
           RopeShape{2, 1, 96, 48, RopePairs::kAdjacent, KvElement::kInt8},
           RopeShape{3, 1, 128, 64, RopePairs::kAdjacent, KvElement::kBf16},
           RopeShape{2, 2, 256, 128, RopePairs::kHalves, KvElement::kInt8},
       }) {
    const bool int8 = shape.element == KvElement::kInt8;
    const std::string name = "dim" + std::to_string(shape.head_dim) + (int8 ? "_int8" : "_bf16") +
                             (shape.pairs == RopePairs::kAdjacent ? "_adjacent" : "_halves");
    entries.push_back(MakeEntry<RopeCase>(
        "rope_kv_write", name,
        int8 ? "1e-5 + one unit of bfloat16, half a step of int8; scale 2^-10 above" : "1e-5 + one unit of bfloat16",
        shape));
  }
  return entries;
}

}  // namespace berth::cuda
