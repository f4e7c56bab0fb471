#include "runner/cpu/kv_store.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace berth {

absl::StatusOr<KvStore> KvStore::Create(const KvShape& shape, KvDtype dtype, const KvPoolShape& pool) {
  KvStore store;
  store.shape_ = shape;
  store.pool_ = pool;
  store.element_ = dtype == KvDtype::kFloat32 ? cpu::KvElement::kF32 : cpu::KvElement::kBF16;
  store.block_bytes_.fill(static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(store.HeadStride()) *
                          store.ElementBytes());
  store.layer_bytes_ = std::accumulate(store.block_bytes_.begin(), store.block_bytes_.end(), std::size_t{0});
  if (absl::Status status = store.Map(dtype); !status.ok()) return status;
  return store;
}

absl::Status KvStore::Map(KvDtype dtype) {
  const auto name = [&](const char* where, std::int32_t blocks) {
    return absl::StrCat("the ", where, "KV pool of ", blocks, " blocks of ", pool_.block_tokens, " tokens in ",
                        KvDtypeName(dtype));
  };
  const auto lay_out = [&](std::byte* base) {
    MemoryLayout layout(base);
    parts_.clear();
    for (std::int32_t layer = 0; layer < shape_.layers; ++layer) {
      for (const std::size_t bytes : block_bytes_) {
        parts_.push_back(layout.Take<std::byte>(static_cast<std::size_t>(pool_.num_blocks), bytes));
      }
    }
    return layout.bytes();
  };
  absl::StatusOr<MappedMemory> memory = MappedMemory::Map(lay_out(nullptr), name("", pool_.num_blocks));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  lay_out(memory_.data());

  MemoryLayout host;
  host.Take<std::byte>(static_cast<std::size_t>(pool_.host_blocks),
                       layer_bytes_ * static_cast<std::size_t>(shape_.layers));
  memory = MappedMemory::Map(host.bytes(), name("host's ", pool_.host_blocks));
  if (!memory.ok()) return memory.status();
  host_ = *std::move(memory);
  return absl::OkStatus();
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
  WritePart(ops, PartOf(layer, kKeys), slot, k);
  WritePart(ops, PartOf(layer, kValues), slot, v);
}

void KvStore::CopyBlock(std::int32_t layer, BlockId from, BlockId to) const {
  for (const Part part : {kKeys, kValues}) {
    const std::size_t bytes = block_bytes_[part];
    std::byte* blocks = PartOf(layer, part);
    std::memcpy(blocks + static_cast<std::size_t>(to) * bytes, blocks + static_cast<std::size_t>(from) * bytes, bytes);
  }
}

template <typename Function>
void KvStore::ForEachPart(std::int32_t layer, const SwapCopy& copy, const Function& function) const {
  std::byte* host =
      host_.data() + (static_cast<std::size_t>(copy.host_block) * static_cast<std::size_t>(shape_.layers) +
                      static_cast<std::size_t>(layer)) *
                         layer_bytes_;
  for (const Part part : {kKeys, kValues}) {
    const std::size_t bytes = block_bytes_[part];
    function(PartOf(layer, part) + static_cast<std::size_t>(copy.block) * bytes, host, bytes);
    host += bytes;
  }
}

void KvStore::SwapOut(std::int32_t layer, const SwapCopy& copy) const {
  ForEachPart(layer, copy,
              [](const std::byte* block, std::byte* host, std::size_t bytes) { std::memcpy(host, block, bytes); });
}

void KvStore::SwapIn(std::int32_t layer, const SwapCopy& copy) const {
  ForEachPart(layer, copy,
              [](std::byte* block, const std::byte* host, std::size_t bytes) { std::memcpy(block, host, bytes); });
}

void KvStore::Describe(std::int32_t layer, std::int32_t kv_head, cpu::AttentionTile* tile) const {
  const std::size_t head = static_cast<std::size_t>(kv_head * HeadStride()) * ElementBytes();
  tile->head_dim = shape_.head_dim;
  tile->element = element_;
  tile->k = PartOf(layer, kKeys) + head;
  tile->v = PartOf(layer, kValues) + head;
  tile->block_stride = shape_.kv_heads * HeadStride();
  tile->block_tokens = pool_.block_tokens;
}

}  // namespace berth
