// The paged K and V of every layer. Per layer, K and V apart, each [block][kv_head][token of the block][head_dim]; for
// int8 also their scales, each [block][kv_head][token of the block]. Beside them a pool in the host's memory for what
// is swapped out: there a block's parts of all layers lie together, since they are only ever copied whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

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

  // Copies what a block holds of one layer. REQUIRES: from != to.
  void CopyBlock(std::int32_t layer, BlockId from, BlockId to) const;
  void SwapOut(std::int32_t layer, const SwapCopy& copy) const;  // block -> host_block
  void SwapIn(std::int32_t layer, const SwapCopy& copy) const;   // host_block -> block

  // Fills in the tile's fields about K and V, but for the block table.
  void Describe(std::int32_t layer, std::int32_t kv_head, cpu::AttentionTile* tile) const;

 private:
  enum Part : std::uint8_t { kKeys, kValues, kKeyScales, kValueScales, kParts };

  KvStore() = default;

  absl::Status Map(KvDtype dtype);
  std::size_t ElementBytes() const;
  std::byte* PartOf(std::int32_t layer, Part part) const {
    return parts_[static_cast<std::size_t>(layer) * kParts + part];
  }
  // Calls function(pool, host, bytes) for each part of one layer of the copy's two blocks.
  template <typename Function>
  void ForEachPart(std::int32_t layer, const SwapCopy& copy, const Function& function) const;
  // `part` is kKeys or kValues; its scales follow from it.
  void WritePart(const cpu::OpsKernels& ops, std::int32_t layer, Part part, std::int64_t slot, const float* rows) const;
  std::uint16_t* Scales(std::int32_t layer, Part part) const {
    return reinterpret_cast<std::uint16_t*>(PartOf(layer, part == kKeys ? kKeyScales : kValueScales));
  }

  KvShape shape_;
  KvPoolShape pool_;
  cpu::KvElement element_ = cpu::KvElement::kBF16;
  std::array<std::size_t, kParts> block_bytes_{};  // of one layer; 0: there is no such part
  std::size_t layer_bytes_ = 0;                    // of one block: all parts
  MappedMemory memory_;
  std::vector<std::byte*> parts_;  // [layer][part]
  MappedMemory host_;              // [host block][layer][part]
};

}  // namespace berth
