// The paged K and V of every layer, and a pool in the host's memory for what is swapped out. A block lies in one piece,
// [layer][keys, values, scales of keys, scales of values]: copying and swapping it are long runs, and memory that was
// never used stays untouched. Keys and values are [kv_head][token of the block][head_dim], and their scales, which only
// int8 has, [kv_head][token of the block].
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "berth/kv.h"
#include "berth/step.h"
#include "berth/units.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/ops.h"
#include "runner/cpu/mapped_memory.h"

namespace berth {

class KvStore {
 public:
  static absl::StatusOr<KvStore> Create(const KvShape& shape, KvDtype dtype, const KvPoolShape& pool);

  // Stores one token's keys and values, rows of kv_heads · head_dim floats, at `slot` = block · block_tokens + place.
  void Write(const cpu::OpsKernels& ops, std::int32_t layer, std::int64_t slot, const float* k, const float* v) const;

  // Layers [begin, end): threads share a copy by its layers.
  struct Layers {
    std::int32_t begin = 0;
    std::int32_t end = 0;
  };
  // Copies what a block holds of these layers. REQUIRES: from != to.
  void CopyBlock(const Layers& layers, BlockId from, BlockId to) const;
  void SwapOut(const Layers& layers, const SwapCopy& copy) const;  // block -> host_block
  void SwapIn(const Layers& layers, const SwapCopy& copy) const;   // host_block -> block

  // Fills in the tile's fields about K and V, but for the block table.
  void Describe(std::int32_t layer, std::int32_t kv_head, cpu::AttentionTile* tile) const;

 private:
  // Offsets in bytes from where a layer of a block begins.
  struct Part {
    std::size_t rows = 0;
    std::size_t scales = 0;
  };

  KvStore() = default;

  std::byte* At(const MappedMemory& pool, BlockId block, std::int32_t layer) const {
    return pool.data() + static_cast<std::size_t>(block) * block_bytes_ +
           static_cast<std::size_t>(layer) * layer_bytes_;
  }
  void WritePart(const cpu::OpsKernels& ops, std::byte* layer, const Part& part, std::int32_t place,
                 const float* rows) const;

  KvShape shape_;
  KvPoolShape pool_;
  cpu::KvElement element_ = cpu::KvElement::kBF16;
  std::size_t element_bytes_ = 0;
  std::size_t layer_bytes_ = 0;  // of one block
  std::size_t block_bytes_ = 0;  // of all layers
  Part keys_;
  Part values_;
  MappedMemory memory_;
  MappedMemory host_;
};

}  // namespace berth
