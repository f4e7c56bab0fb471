#include "runner/cpu/kv_store.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace berth {
namespace {

cpu::KvElement ElementOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kFloat32:
      return cpu::KvElement::kF32;
    case KvDtype::kBf16:
      return cpu::KvElement::kBF16;
    case KvDtype::kInt8:
      return cpu::KvElement::kInt8;
  }
  CheckFailed(__FILE__, __LINE__, "a KvDtype that has kernels", KvDtypeName(dtype));
}

}  // namespace

absl::StatusOr<KvStore> KvStore::Create(const KvShape& shape, KvDtype dtype, const KvPoolShape& pool) {
  KvStore store;
  store.shape_ = shape;
  store.pool_ = pool;
  store.element_ = ElementOf(dtype);
  const std::size_t tokens = static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(pool.block_tokens);
  store.block_bytes_[kKeys] = tokens * static_cast<std::size_t>(shape.head_dim) * store.ElementBytes();
  store.block_bytes_[kKeyScales] = store.element_ == cpu::KvElement::kInt8 ? tokens * sizeof(std::uint16_t) : 0;
  store.block_bytes_[kValues] = store.block_bytes_[kKeys];
  store.block_bytes_[kValueScales] = store.block_bytes_[kKeyScales];
  store.layer_bytes_ = std::accumulate(store.block_bytes_.begin(), store.block_bytes_.end(), std::size_t{0});
  // What is reserved and billed is what is stored.
  BERTH_CHECK(static_cast<std::int64_t>(store.layer_bytes_) * shape.layers ==
              shape.BytesPerToken(dtype) * pool.block_tokens);
  if (absl::Status status = store.Map(dtype); !status.ok()) return status;
  return store;
}

std::size_t KvStore::ElementBytes() const {
  switch (element_) {
    case cpu::KvElement::kF32:
      return sizeof(float);
    case cpu::KvElement::kBF16:
      return sizeof(std::uint16_t);
    case cpu::KvElement::kInt8:
      return sizeof(std::int8_t);
  }
  return 0;
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

void KvStore::WritePart(const cpu::OpsKernels& ops, std::int32_t layer, Part part, std::int64_t slot,
                        const float* rows) const {
  const std::int64_t first =
      slot / pool_.block_tokens * pool_.block_tokens * shape_.kv_heads + slot % pool_.block_tokens;
  for (std::int32_t head = 0; head < shape_.kv_heads; ++head, rows += shape_.head_dim) {
    const std::int64_t token = first + std::int64_t{head} * pool_.block_tokens;
    std::byte* to = PartOf(layer, part) + static_cast<std::size_t>(token * shape_.head_dim) * ElementBytes();
    switch (element_) {
      case cpu::KvElement::kF32:
        std::memcpy(to, rows, static_cast<std::size_t>(shape_.head_dim) * sizeof(float));
        break;
      case cpu::KvElement::kBF16:
        ops.to_bf16(rows, shape_.head_dim, reinterpret_cast<std::uint16_t*>(to));
        break;
      case cpu::KvElement::kInt8:
        ops.to_int8(rows, shape_.head_dim, reinterpret_cast<std::int8_t*>(to), Scales(layer, part) + token);
        break;
    }
  }
}

void KvStore::Write(const cpu::OpsKernels& ops, std::int32_t layer, std::int64_t slot, const float* k,
                    const float* v) const {
  WritePart(ops, layer, kKeys, slot, k);
  WritePart(ops, layer, kValues, slot, v);
}

void KvStore::CopyBlock(std::int32_t layer, BlockId from, BlockId to) const {
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t bytes = block_bytes_[part];
    std::byte* blocks = PartOf(layer, static_cast<Part>(part));
    std::memcpy(blocks + static_cast<std::size_t>(to) * bytes, blocks + static_cast<std::size_t>(from) * bytes, bytes);
  }
}

template <typename Function>
void KvStore::ForEachPart(std::int32_t layer, const SwapCopy& copy, const Function& function) const {
  std::byte* host =
      host_.data() + (static_cast<std::size_t>(copy.host_block) * static_cast<std::size_t>(shape_.layers) +
                      static_cast<std::size_t>(layer)) *
                         layer_bytes_;
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t bytes = block_bytes_[part];
    function(PartOf(layer, static_cast<Part>(part)) + static_cast<std::size_t>(copy.block) * bytes, host, bytes);
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
  const std::int64_t token = std::int64_t{kv_head} * pool_.block_tokens;
  const std::size_t head = static_cast<std::size_t>(token * shape_.head_dim) * ElementBytes();
  tile->head_dim = shape_.head_dim;
  tile->element = element_;
  tile->k = PartOf(layer, kKeys) + head;
  tile->v = PartOf(layer, kValues) + head;
  if (element_ == cpu::KvElement::kInt8) {
    tile->k_scales = Scales(layer, kKeys) + token;
    tile->v_scales = Scales(layer, kValues) + token;
  }
  tile->block_stride = std::int64_t{shape_.kv_heads} * pool_.block_tokens * shape_.head_dim;
  tile->block_tokens = pool_.block_tokens;
}

}  // namespace berth
