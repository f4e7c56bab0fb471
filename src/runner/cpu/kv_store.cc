#include "runner/cpu/kv_store.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "runner/memory_layout.h"

namespace berth {
namespace {

struct Stored {
  cpu::KvElement element = cpu::KvElement::kF32;
  std::size_t bytes = 0;
};

Stored ElementOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kFloat32:
      return {cpu::KvElement::kF32, sizeof(float)};
    case KvDtype::kBf16:
      return {cpu::KvElement::kBF16, sizeof(std::uint16_t)};
    case KvDtype::kInt8:
      return {cpu::KvElement::kInt8, sizeof(std::int8_t)};
  }
  CheckFailed(__FILE__, __LINE__, "a KvDtype that has kernels", KvDtypeName(dtype));
}

}  // namespace

absl::StatusOr<KvStore> KvStore::Create(const KvShape& shape, KvDtype dtype, const KvPoolShape& pool) {
  KvStore store;
  store.shape_ = shape;
  store.pool_ = pool;
  store.element_ = ElementOf(dtype).element;
  store.element_bytes_ = ElementOf(dtype).bytes;
  const std::size_t rows = static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(pool.block_tokens);
  const std::size_t row_bytes = rows * static_cast<std::size_t>(shape.head_dim) * store.element_bytes_;
  store.keys_ = {0, 2 * row_bytes};
  store.values_ = {row_bytes, 2 * row_bytes + rows * sizeof(std::uint16_t)};
  store.block_bytes_ = static_cast<std::size_t>(shape.BytesPerToken(dtype) * pool.block_tokens);
  store.layer_bytes_ = store.block_bytes_ / static_cast<std::size_t>(shape.layers);
  // What is reserved and billed is what is stored.
  const bool has_scales = store.element_ == cpu::KvElement::kInt8;
  BERTH_CHECK(store.layer_bytes_ == (has_scales ? store.values_.scales + rows * sizeof(std::uint16_t) : 2 * row_bytes));

  const auto map = [&](const char* whose, std::int32_t blocks) {
    MemoryLayout layout;
    layout.Take<std::byte>(static_cast<std::size_t>(blocks), store.block_bytes_);
    return MappedMemory::Map(layout.bytes(), absl::StrCat("the ", whose, "KV pool of ", blocks, " blocks of ",
                                                          pool.block_tokens, " tokens in ", KvDtypeName(dtype)));
  };
  absl::StatusOr<MappedMemory> memory = map("", pool.num_blocks);
  if (!memory.ok()) return memory.status();
  store.memory_ = *std::move(memory);
  // Attention reads short runs all over the pool: few address translations make it faster than fewer bytes would.
  store.memory_.PreferLargePages();
  memory = map("host's ", pool.host_blocks);
  if (!memory.ok()) return memory.status();
  store.host_ = *std::move(memory);
  return store;
}

void KvStore::WritePart(const cpu::OpsKernels& ops, std::byte* layer, const Part& part, std::int32_t place,
                        const float* rows) const {
  for (std::int32_t head = 0; head < shape_.kv_heads; ++head, rows += shape_.head_dim) {
    const auto token = static_cast<std::size_t>(head * pool_.block_tokens + place);
    std::byte* to = layer + part.rows + token * static_cast<std::size_t>(shape_.head_dim) * element_bytes_;
    switch (element_) {
      case cpu::KvElement::kF32:
        std::memcpy(to, rows, static_cast<std::size_t>(shape_.head_dim) * sizeof(float));
        break;
      case cpu::KvElement::kBF16:
        ops.to_bf16(rows, shape_.head_dim, reinterpret_cast<std::uint16_t*>(to));
        break;
      case cpu::KvElement::kInt8:
        ops.to_int8(rows, shape_.head_dim, reinterpret_cast<std::int8_t*>(to),
                    reinterpret_cast<std::uint16_t*>(layer + part.scales) + token);
        break;
    }
  }
}

void KvStore::Write(const cpu::OpsKernels& ops, std::int32_t layer, std::int64_t slot, const float* k,
                    const float* v) const {
  std::byte* at = At(memory_, static_cast<BlockId>(slot / pool_.block_tokens), layer);
  const auto place = static_cast<std::int32_t>(slot % pool_.block_tokens);
  WritePart(ops, at, keys_, place, k);
  WritePart(ops, at, values_, place, v);
}

void KvStore::CopyBlock(const Layers& layers, BlockId from, BlockId to) const {
  std::memcpy(At(memory_, to, layers.begin), At(memory_, from, layers.begin),
              static_cast<std::size_t>(layers.end - layers.begin) * layer_bytes_);
}

void KvStore::SwapOut(const Layers& layers, const SwapCopy& copy) const {
  std::memcpy(At(host_, copy.host_block, layers.begin), At(memory_, copy.block, layers.begin),
              static_cast<std::size_t>(layers.end - layers.begin) * layer_bytes_);
}

void KvStore::SwapIn(const Layers& layers, const SwapCopy& copy) const {
  std::memcpy(At(memory_, copy.block, layers.begin), At(host_, copy.host_block, layers.begin),
              static_cast<std::size_t>(layers.end - layers.begin) * layer_bytes_);
}

void KvStore::Describe(std::int32_t layer, std::int32_t kv_head, cpu::AttentionTile* tile) const {
  const std::byte* at = At(memory_, 0, layer);
  const auto token = static_cast<std::size_t>(kv_head * pool_.block_tokens);
  const std::size_t head = token * static_cast<std::size_t>(shape_.head_dim) * element_bytes_;
  tile->head_dim = shape_.head_dim;
  tile->element = element_;
  tile->k = at + keys_.rows + head;
  tile->v = at + values_.rows + head;
  if (element_ == cpu::KvElement::kInt8) {
    tile->k_scales = reinterpret_cast<const std::uint16_t*>(at + keys_.scales) + token;
    tile->v_scales = reinterpret_cast<const std::uint16_t*>(at + values_.scales) + token;
  }
  tile->block_bytes = static_cast<std::int64_t>(block_bytes_);
  tile->block_tokens = pool_.block_tokens;
}

}  // namespace berth
