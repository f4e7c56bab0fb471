// The paged K and V of every layer. Per layer, K and V apart, each [block][kv_head][token of the block][head_dim].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/kv.h"
#include "berth/units.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/ops.h"
#include "runner/cpu/mapped_memory.h"

namespace berth {

class KvStore {
 public:
  // REQUIRES: kFloat32 or kBf16.
  static absl::StatusOr<KvStore> Create(const KvShape& shape, KvDtype dtype, const KvPoolShape& pool);

  // Stores one token's keys and values, rows of kv_heads · head_dim floats, at `slot` = block · block_tokens + place.
  void Write(const cpu::OpsKernels& ops, std::int32_t layer, std::int64_t slot, const float* k, const float* v) const;

  // Copies a block's keys and values of one layer. REQUIRES: from != to.
  void CopyBlock(std::int32_t layer, BlockId from, BlockId to) const;

  // Fills in the tile's fields about K and V, but for the block table.
  void Describe(std::int32_t layer, std::int32_t kv_head, cpu::AttentionTile* tile) const;

 private:
  KvStore() = default;

  std::int64_t HeadStride() const { return static_cast<std::int64_t>(pool_.block_tokens) * shape_.head_dim; }
  std::size_t ElementBytes() const { return element_ == cpu::KvElement::kF32 ? 4 : 2; }
  std::size_t BlockBytes() const {  // of one layer's keys, or its values
    return static_cast<std::size_t>(shape_.kv_heads) * static_cast<std::size_t>(HeadStride()) * ElementBytes();
  }
  void WritePart(const cpu::OpsKernels& ops, std::byte* part, std::int64_t slot, const float* rows) const;

  KvShape shape_;
  KvPoolShape pool_;
  cpu::KvElement element_ = cpu::KvElement::kBF16;
  MappedMemory memory_;
  std::vector<std::byte*> keys_;  // by layer
  std::vector<std::byte*> values_;
};

}  // namespace berth
