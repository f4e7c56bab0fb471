#include "runner/cpu/kv_store.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace berth {

absl::StatusOr<KvStore> KvStore::Create(const KvShape& shape, KvDtype dtype, const KvPoolShape& pool) {
  KvStore store;
  store.shape_ = shape;
  store.pool_ = pool;
  store.element_ = dtype == KvDtype::kFloat32 ? cpu::KvElement::kF32 : cpu::KvElement::kBF16;
  const auto lay_out = [&](std::byte* base) {
    MemoryLayout layout(base);
    store.keys_.clear();
    store.values_.clear();
    for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
      store.keys_.push_back(layout.Take<std::byte>(static_cast<std::size_t>(pool.num_blocks), store.BlockBytes()));
      store.values_.push_back(layout.Take<std::byte>(static_cast<std::size_t>(pool.num_blocks), store.BlockBytes()));
    }
    return layout.bytes();
  };
  absl::StatusOr<MappedMemory> memory =
      MappedMemory::Map(lay_out(nullptr), absl::StrCat("the KV pool of ", pool.num_blocks, " blocks of ",
                                                       pool.block_tokens, " tokens in ", KvDtypeName(dtype)));
  if (!memory.ok()) return memory.status();
  store.memory_ = *std::move(memory);
  lay_out(store.memory_.data());
  return store;
}

void KvStore::WritePart(const cpu::OpsKernels& ops, std::byte* part, std::int64_t slot, const float* rows) const {
  const std::int64_t block = slot / pool_.block_tokens;
  std::int64_t at = block * shape_.kv_heads * HeadStride() + slot % pool_.block_tokens * shape_.head_dim;
  for (std::int32_t head = 0; head < shape_.kv_heads; ++head, at += HeadStride(), rows += shape_.head_dim) {
    std::byte* to = part + static_cast<std::size_t>(at) * ElementBytes();
    if (element_ == cpu::KvElement::kF32) {
      std::memcpy(to, rows, static_cast<std::size_t>(shape_.head_dim) * sizeof(float));
    } else {
      ops.to_bf16(rows, shape_.head_dim, reinterpret_cast<std::uint16_t*>(to));
    }
  }
}

void KvStore::Write(const cpu::OpsKernels& ops, std::int32_t layer, std::int64_t slot, const float* k,
                    const float* v) const {
  WritePart(ops, keys_[static_cast<std::size_t>(layer)], slot, k);
  WritePart(ops, values_[static_cast<std::size_t>(layer)], slot, v);
}

void KvStore::CopyBlock(std::int32_t layer, BlockId from, BlockId to) const {
  for (std::byte* part : {keys_[static_cast<std::size_t>(layer)], values_[static_cast<std::size_t>(layer)]}) {
    std::memcpy(part + static_cast<std::size_t>(to) * BlockBytes(),
                part + static_cast<std::size_t>(from) * BlockBytes(), BlockBytes());
  }
}

void KvStore::Describe(std::int32_t layer, std::int32_t kv_head, cpu::AttentionTile* tile) const {
  const std::size_t head = static_cast<std::size_t>(kv_head * HeadStride()) * ElementBytes();
  tile->head_dim = shape_.head_dim;
  tile->element = element_;
  tile->k = keys_[static_cast<std::size_t>(layer)] + head;
  tile->v = values_[static_cast<std::size_t>(layer)] + head;
  tile->block_stride = shape_.kv_heads * HeadStride();
  tile->block_tokens = pool_.block_tokens;
}

}  // namespace berth
