#include "runner/cuda/kv_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/elementwise.h"

namespace berth {
namespace {

constexpr std::int64_t kVectorBytes = 16;

std::int64_t ElementBytes(KvDtype dtype) { return dtype == KvDtype::kInt8 ? 1 : 2; }

}  // namespace

KvBlockBytes KvBlockBytesOf(const CudaShape& shape) {
  const std::int64_t tokens = std::int64_t{shape.kv_heads} * shape.pool.block_tokens;
  KvBlockBytes bytes;
  bytes.elements = tokens * shape.head_dim * ElementBytes(shape.kv_dtype);
  if (shape.kv_dtype == KvDtype::kInt8) {
    bytes.scales = CeilDiv(tokens * static_cast<std::int64_t>(sizeof(std::uint16_t)), kVectorBytes) * kVectorBytes;
  }
  bytes.block = 2 * shape.layers * (bytes.elements + bytes.scales);
  return bytes;
}

absl::StatusOr<CudaKvPool> CudaKvPool::Create(const CudaShape& shape) {
  CudaKvPool pool;
  pool.shape_ = shape;
  pool.bytes_ = KvBlockBytesOf(shape);
  const KvBlockBytes& bytes = pool.bytes_;
  const std::int64_t parts = 2 * shape.layers;
  const auto describe = [&](const char* whose, std::int32_t blocks) {
    return absl::StrCat("the ", whose, "KV pool of ", blocks, " blocks of ", shape.pool.block_tokens, " tokens in ",
                        KvDtypeName(shape.kv_dtype));
  };
  const std::int64_t blocks = shape.pool.num_blocks;
  absl::StatusOr<CudaBuffer> device =
      CudaBuffer::OnDevice(static_cast<std::size_t>(blocks * bytes.block), describe("", shape.pool.num_blocks));
  if (!device.ok()) return device.status();
  pool.device_ = *std::move(device);
  pool.device_blocks_ = {{pool.device_.data(), blocks * bytes.elements, bytes.elements},
                         {pool.device_.data() + parts * blocks * bytes.elements, blocks * bytes.scales, bytes.scales}};
  absl::StatusOr<CudaBuffer> host = CudaBuffer::Pinned(static_cast<std::size_t>(shape.pool.host_blocks * bytes.block),
                                                       describe("host's ", shape.pool.host_blocks));
  if (!host.ok()) return host.status();
  pool.host_ = *std::move(host);
  pool.host_blocks_ = {{pool.host_.data(), bytes.elements, bytes.block},
                       {pool.host_.data() + parts * bytes.elements, bytes.scales, bytes.block}};
  return pool;
}

cuda::KvCache CudaKvPool::CacheOf(std::int32_t layer) const {
  const auto part = [layer](const cuda::BlockParts& parts, int which) {
    return parts.data + (2 * layer + which) * parts.part_stride;
  };
  cuda::KvCache cache{};
  cache.keys = part(device_blocks_.elements, 0);
  cache.values = part(device_blocks_.elements, 1);
  if (bytes_.scales > 0) {
    cache.key_scales = reinterpret_cast<std::uint16_t*>(part(device_blocks_.scales, 0));
    cache.value_scales = reinterpret_cast<std::uint16_t*>(part(device_blocks_.scales, 1));
  }
  cache.block_stride = bytes_.elements / ElementBytes(shape_.kv_dtype);
  cache.scale_block_stride = bytes_.scales / static_cast<std::int64_t>(sizeof(std::uint16_t));
  cache.num_kv_heads = shape_.kv_heads;
  cache.head_dim = shape_.head_dim;
  cache.block_tokens = shape_.pool.block_tokens;
  cache.element = shape_.kv_dtype == KvDtype::kInt8 ? cuda::KvElement::kInt8 : cuda::KvElement::kBf16;
  return cache;
}

absl::Status CudaKvPool::Copy(const DeviceCopies& copies, const Blocks& from, const Blocks& to,
                              cudaStream_t stream) const {
  const auto copy = [&](const cuda::BlockParts& source, const cuda::BlockParts& destination,
                        std::int64_t part_bytes) -> absl::Status {
    BERTH_CUDA_CALL(cuda::LaunchBlockCopies,
                    {.from = copies.from,
                     .to = copies.to,
                     .source = source,
                     .destination = destination,
                     .part_bytes = part_bytes,
                     .num_parts = 2 * shape_.layers,
                     .num_copies = copies.count},
                    stream);
    return absl::OkStatus();
  };
  if (copies.count == 0) return absl::OkStatus();
  BERTH_TRY(copy(from.elements, to.elements, bytes_.elements));
  return bytes_.scales == 0 ? absl::OkStatus() : copy(from.scales, to.scales, bytes_.scales);
}

absl::Status CudaKvPool::CopyBlocks(const DeviceCopies& copies, cudaStream_t stream) const {
  return Copy(copies, device_blocks_, device_blocks_, stream);
}

absl::Status CudaKvPool::SwapOut(const DeviceCopies& copies, cudaStream_t stream) const {
  return Copy(copies, device_blocks_, host_blocks_, stream);
}

absl::Status CudaKvPool::SwapIn(const DeviceCopies& copies, cudaStream_t stream) const {
  return Copy(copies, host_blocks_, device_blocks_, stream);
}

}  // namespace berth
