// A paged KV cache for tests of attention kernels, and attention over it in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/params/kv_cache.h"

namespace berth::cuda {

struct CacheShape {
  int num_kv_heads;
  int head_dim;
  int block_tokens;
  KvElement element;
};

inline std::string Name(const CacheShape& shape) {
  return "Dim" + std::to_string(shape.head_dim) + (shape.element == KvElement::kInt8 ? "Int8" : "Bf16") + "Blocks" +
         std::to_string(shape.block_tokens);
}

// What a sequence has stored: positions begin .. end - 1.
struct StoredPositions {
  int begin;
  int end;
};

// Blocks lie in a random order, with NaN wherever no token was stored. What a position stores depends on its sequence,
// head and number alone.
class PagedCache {
 public:
  PagedCache(const CacheShape& shape, const std::vector<StoredPositions>& sequences) : shape_(shape) {
    int longest = 0;
    for (const StoredPositions& stored : sequences) longest = std::max(longest, stored.end);
    max_blocks_ = longest / shape.block_tokens + 2;
    const int num_blocks = static_cast<int>(sequences.size()) * max_blocks_;
    tables_.resize(Size(num_blocks));
    std::iota(tables_.begin(), tables_.end(), 0);
    std::mt19937 generator(5);
    std::shuffle(tables_.begin(), tables_.end(), generator);
    const std::int64_t rows = std::int64_t{num_blocks} * shape.num_kv_heads * shape.block_tokens;
    for (Tensor* tensor : {&keys_, &values_}) {
      tensor->bf16.assign(Size(rows * shape.head_dim), 0xffff);
      tensor->codes.assign(Size(rows * shape.head_dim), 127);
      tensor->scales.assign(Size(rows), 0xffff);
    }
    for (std::size_t sequence = 0; sequence < sequences.size(); ++sequence) {
      for (int position = sequences[sequence].begin; position < sequences[sequence].end; ++position) {
        for (int head = 0; head < shape.num_kv_heads; ++head) Store(sequence, position, head);
      }
    }
  }

  // Of a sequence: its tables[sequence * max_blocks + i] is where its positions i · block_tokens on are.
  int max_blocks() const { return max_blocks_; }
  const std::vector<std::int32_t>& tables() const { return tables_; }

  // Elements [block, head, token, head_dim] of the shape's type, and [block, head, token] scales.
  struct Tensor {
    std::vector<std::uint16_t> bf16;
    std::vector<std::int8_t> codes;
    std::vector<std::uint16_t> scales;
  };
  const Tensor& keys() const { return keys_; }
  const Tensor& values() const { return values_; }

  std::int32_t* device_tables() const { return device().tables.data(); }
  KvCache OnDevice() const {
    const bool int8 = shape_.element == KvElement::kInt8;
    const Device& device = this->device();
    const std::int64_t block_rows = std::int64_t{shape_.num_kv_heads} * shape_.block_tokens;
    return {.keys = int8 ? static_cast<void*>(device.key_codes.data()) : device.keys.data(),
            .values = int8 ? static_cast<void*>(device.value_codes.data()) : device.values.data(),
            .key_scales = device.key_scales.data(),
            .value_scales = device.value_scales.data(),
            .block_stride = block_rows * shape_.head_dim,
            .scale_block_stride = block_rows,
            .num_kv_heads = shape_.num_kv_heads,
            .head_dim = shape_.head_dim,
            .block_tokens = shape_.block_tokens,
            .element = shape_.element};
  }

  // softmax(q · k · scale) · v over positions begin .. end - 1; zeros if there is none.
  std::vector<double> Attend(const std::uint16_t* q, std::size_t sequence, int kv_head, int begin, int end,
                             double scale) const {
    std::vector<double> scores;
    for (int position = begin; position < end; ++position) {
      double score = 0;
      const std::size_t row = Row(sequence, position, kv_head);
      for (int i = 0; i < shape_.head_dim; ++i) score += FromBf16(q[i]) * Value(keys_, row, i);
      scores.push_back(score * scale);
    }
    std::vector<double> result(Size(shape_.head_dim), 0.0);
    if (scores.empty()) return result;
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (int position = begin; position < end; ++position) {
      const double weight = std::exp(scores[Size(position - begin)] - highest);
      sum += weight;
      const std::size_t row = Row(sequence, position, kv_head);
      for (int i = 0; i < shape_.head_dim; ++i) result[Size(i)] += weight * Value(values_, row, i);
    }
    for (double& value : result) value /= sum;
    return result;
  }

 private:
  struct Device {
    Device(const Tensor& k, const Tensor& v, const std::vector<std::int32_t>& block_tables)
        : keys(k.bf16),
          values(v.bf16),
          key_codes(k.codes),
          value_codes(v.codes),
          key_scales(k.scales),
          value_scales(v.scales),
          tables(block_tables) {}
    emulation::DeviceArray<std::uint16_t> keys, values;
    emulation::DeviceArray<std::int8_t> key_codes, value_codes;
    emulation::DeviceArray<std::uint16_t> key_scales, value_scales;
    emulation::DeviceArray<std::int32_t> tables;
  };

  const Device& device() const {
    if (!device_) device_.emplace(keys_, values_, tables_);
    return *device_;
  }

  void Store(std::size_t sequence, int position, int head) {
    std::mt19937 generator(static_cast<unsigned>((sequence * 64 + Size(head)) * 4096 + Size(position)));
    std::normal_distribution<float> normal;
    const std::size_t row = Row(sequence, position, head);
    constexpr std::uint16_t kHalfs[] = {0x2400, 0x2555, 0x2200};  // float16 near 1/64
    for (Tensor* tensor : {&keys_, &values_}) {
      tensor->scales[row] = kHalfs[generator() % 3];
      for (std::size_t i = 0; i < Size(shape_.head_dim); ++i) {
        tensor->bf16[row * Size(shape_.head_dim) + i] = ToBf16(normal(generator));
        tensor->codes[row * Size(shape_.head_dim) + i] = static_cast<std::int8_t>(generator() % 255 - 127);
      }
    }
  }

  std::size_t Row(std::size_t sequence, int position, int head) const {
    const int block = tables_[sequence * Size(max_blocks_) + Size(position / shape_.block_tokens)];
    return Size((block * shape_.num_kv_heads + head) * shape_.block_tokens + position % shape_.block_tokens);
  }
  double Value(const Tensor& tensor, std::size_t row, int i) const {
    const std::size_t at = row * Size(shape_.head_dim) + Size(i);
    if (shape_.element == KvElement::kBf16) return FromBf16(tensor.bf16[at]);
    return double{cpu::HalfToFloat(tensor.scales[row])} * tensor.codes[at];
  }

  CacheShape shape_;
  int max_blocks_ = 0;
  std::vector<std::int32_t> tables_;
  Tensor keys_;
  Tensor values_;
  mutable std::optional<Device> device_;  // a copy, once it is asked for
};

}  // namespace berth::cuda
