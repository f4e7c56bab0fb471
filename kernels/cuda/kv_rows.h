// How rows of keys and values come from the paged cache to shared memory. Device code of the attention kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/kv_address.h"
#include "kernels/gpu.h"
#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// Positions begin .. end - 1 of a sequence, which a block of threads attends to, for one KV head.
struct KvSource {
  KvAddress address;
  int begin;
  int end;
};

// A warp's copies of the rows of kRows positions, from a multiple of kRows on. Positions that nobody attends to are not
// read and become zeros: what lies there may be no number, and 0 · NaN is none.
template <int kDim, KvElement kElement, int kRows>
class KvRows {
 public:
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  using Element = std::conditional_t<kInt8, std::uint8_t, std::uint16_t>;

  __device__ KvRows(const KvCache& cache, const KvSource& source) : cache_(cache), source_(source) {}

  // The id of the cache's block in which all of the rows lie, if blocks are that large: for the copies, which wait for
  // it, so that it is asked for long before.
  __device__ std::int32_t BlockOf(int first) const {
    const bool any = first < source_.end && first + kRows > source_.begin;
    return InOneBlock() && any ? source_.address.BlockOf(first) : 0;
  }

  template <typename Row>
  __device__ void Copy(const void* tensor, std::int32_t block, int first, Row* rows) const {
    const auto* elements = static_cast<const Element*>(tensor);
    const bool whole = first >= source_.begin && first + kRows <= source_.end;
    if (!whole || !InOneBlock()) return CopyOneByOne(elements, block, first, rows);
    // A head's rows of a block are contiguous.
    const int lane = gpu::LaneId();
    const Element* run = elements + source_.address.Row(cache_, block, first) + lane * kPieceElements;
    constexpr int kTotal = kRows * kPieces;
#pragma unroll
    for (int begin = 0; begin < kTotal; begin += 32) {
      if (kTotal % 32 != 0 && begin + lane >= kTotal) break;
      // Where it can be, a place is the lane's with a constant added.
      constexpr bool kConstantSteps = 32 % kPieces == 0;
      const int row = kConstantSteps ? begin / kPieces + lane / kPieces : (begin + lane) / kPieces;
      const int column = (kConstantSteps ? lane : begin + lane) % kPieces * kPieceElements;
      gpu::CopyAsync<16>(&rows[row][column], run + begin * kPieceElements);
    }
  }

  // Two at once: a pair never leaves its block. One that nobody attends to may come with its neighbour's and be
  // anything.
  __device__ void CopyScales(const std::uint16_t* tensor, std::int32_t block, int first, std::uint16_t* scales) const {
    const int row = gpu::LaneId() * 2;
    if (row >= kRows) return;
    const int position = first + row;
    const bool valid = position + 1 >= source_.begin && position < source_.end;
    std::int64_t at = 0;
    if (valid) at = source_.address.Scale(cache_, InOneBlock() ? block : source_.address.BlockOf(position), position);
    gpu::CopyAsync<4>(&scales[row], tensor + at, valid);
  }

 private:
  static constexpr int kPieceElements = 16 / sizeof(Element);
  static constexpr int kPieces = kDim / kPieceElements;  // of a row

  __device__ bool InOneBlock() const { return cache_.block_tokens >= kRows; }

  template <typename Row>
  __device__ void CopyOneByOne(const Element* elements, std::int32_t block, int first, Row* rows) const {
#pragma unroll 4
    for (int piece = gpu::LaneId(); piece < kRows * kPieces; piece += 32) {
      const int row = piece / kPieces;
      const int column = piece % kPieces * kPieceElements;
      const int position = first + row;
      const bool valid = position >= source_.begin && position < source_.end;
      std::int64_t at = 0;
      if (valid) {
        const std::int32_t own = InOneBlock() ? block : source_.address.BlockOf(position);
        at = source_.address.Row(cache_, own, position) + column;
      }
      gpu::CopyAsync<16>(&rows[row][column], elements + at, valid);
    }
  }

  const KvCache& cache_;
  const KvSource& source_;
};

}  // namespace berth::cuda
