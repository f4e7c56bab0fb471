// What a block of prefill attention works on, and how tiles of keys and values come to its shared memory. Device code
// of paged_prefill.cu.
#pragma once

#include <cstdint>

#include "kernels/cuda/int8_codes.h"
#include "kernels/cuda/kv_address.h"
#include "kernels/cuda/kv_rows.h"
#include "kernels/gpu.h"
#include "kernels/params/paged_prefill.h"

namespace berth::cuda {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = kPrefillWarps * 32;

// Sizes by head dimension: what the registers of a multiprocessor hold.
template <int kDim>
struct PrefillSizes {
  static_assert(kDim % 16 == 0 && kDim <= 256);
  static constexpr int kRowFragments = kDim <= 128 ? 2 : 1;  // 16 rows each, of a warp
  static constexpr int kWarpRows = 16 * kRowFragments;
  static constexpr int kRows = kPrefillWarps * kWarpRows;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;  // positions of a tile
};

// A head dimension whose tile of rows takes too many registers leaves the rest of PrefillTile's rows to other blocks.
// Lies in shared memory: registers are scarce.
struct PrefillBlock {
  KvSource source;  // what any of the rows attends to
  int kv_head;
  int group;
  int first_token;     // of the sequence's, in the step
  int first_position;  // of that token
  int first_row;       // of the sequence's
  int rows;            // from there on; none or fewer: no block

  __device__ int PositionOf(int row) const { return first_position + (first_row + row) / group; }
};

template <int kRows>
__device__ PrefillBlock FindPrefillBlock(const PagedPrefillParams& params) {
  constexpr unsigned kParts = kPrefillTileRows / kRows;
  static_assert(kParts * kRows == kPrefillTileRows);
  // The last tiles of a sequence first: they attend to the most.
  const unsigned index = gridDim.x - 1 - blockIdx.x;
  const PrefillTile& tile = params.tiles[index / kParts];
  const std::int32_t* table = params.block_tables + static_cast<std::int64_t>(tile.sequence) * params.max_blocks;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = params.num_q_heads / params.cache.num_kv_heads;
  const int first_token = params.token_begins[tile.sequence];
  const int tokens = params.token_begins[tile.sequence + 1] - first_token;
  const int first_row = tile.first_row + static_cast<int>(index % kParts) * kRows;
  PrefillBlock block{.source = {.address = KvAddress(params.cache, table, kv_head), .begin = 0, .end = 0},
                     .kv_head = kv_head,
                     .group = group,
                     .first_token = first_token,
                     .first_position = params.kv_lengths[tile.sequence] - tokens,
                     .first_row = first_row,
                     .rows = min(tokens * group - first_row, kRows)};
  if (params.window > 0) block.source.begin = max(0, block.PositionOf(0) - params.window + 1);
  block.source.end = block.PositionOf(block.rows - 1) + 1;
  return block;
}

// A tile of keys or of values. Rows are padded by 16 bytes, so that the eight rows of a matrix lie in different banks.
template <int kDim, KvElement kElement>
struct PrefillSlot;

template <int kDim>
struct alignas(16) PrefillSlot<kDim, KvElement::kBf16> {
  std::uint16_t rows[PrefillSizes<kDim>::kKeys][kDim + 8];
};

template <int kDim>
struct alignas(16) PrefillSlot<kDim, KvElement::kInt8> {
  std::uint16_t rows[PrefillSizes<kDim>::kKeys][kDim + 8];  // the codes
  float scales[PrefillSizes<kDim>::kKeys];
};

template <int kDim, KvElement kElement>
struct PrefillSlots;

template <int kDim>
struct PrefillSlots<kDim, KvElement::kBf16> {
  PrefillSlot<kDim, KvElement::kBf16> keys;
  PrefillSlot<kDim, KvElement::kBf16> values;
};

template <int kDim>
struct PrefillSlots<kDim, KvElement::kInt8> {
  PrefillSlot<kDim, KvElement::kInt8> keys;
  PrefillSlot<kDim, KvElement::kInt8> values;
  // Codes as they come; each is made a bfloat16 once, by the warp that copied it.
  struct alignas(16) Stage {
    std::uint8_t rows[PrefillSizes<kDim>::kKeys][kDim];
    std::uint16_t scales[PrefillSizes<kDim>::kKeys];
  } stage;
};

// Brings the keys and the values of the block's tiles in turn: while one of them is used, the next is under way. Tiles
// lie at multiples of kKeys. Each warp copies rows of its own, the same of every tile.
template <int kDim, KvElement kElement>
class PrefillLoader {
 public:
  using Sizes = PrefillSizes<kDim>;
  using Slots = PrefillSlots<kDim, kElement>;
  using Slot = PrefillSlot<kDim, kElement>;
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  static constexpr int kKeys = Sizes::kKeys;

  __device__ PrefillLoader(const PagedPrefillParams& params, const KvSource& source, Slots& slots)
      : cache_(params.cache),
        source_(source),
        slots_(slots),
        rows_(params.cache, source),
        first_row_(static_cast<int>(threadIdx.x / 32) * kWarpKeys) {
    const int first = source.begin / kKeys * kKeys;
    block_ = rows_.BlockOf(first + first_row_);
    StartKeys(first);
  }

  // The keys of the tile that begins at position `first`, then its values, then those of the next tile, for all threads
  // of the block. What was asked for before is overwritten from here on.
  __device__ const Slot& Keys(int first) {
    Arrive(slots_.keys, first, [&] { StartValues(first); });
    return slots_.keys;
  }
  __device__ const Slot& Values(int first) {
    Arrive(slots_.values, first, [&] { StartKeys(first + kKeys); });
    return slots_.values;
  }

 private:
  static constexpr int kWarpKeys = kKeys / kPrefillWarps;

  // Waits for what is under way and starts the next.
  template <typename StartNext>
  __device__ void Arrive(Slot& slot, int first, StartNext start_next) {
    gpu::WaitCopies<0>();
    if constexpr (kInt8) {
      __syncwarp();  // the other lanes' copies
      Convert(slot, first);
      __syncwarp();  // all lanes have read the stage
      start_next();
      __syncthreads();
    } else {
      __syncthreads();
      start_next();
    }
  }

  __device__ void StartKeys(int tile) {
    if (tile < source_.end) Start(cache_.keys, cache_.key_scales, tile + first_row_, slots_.keys);
  }
  __device__ void StartValues(int tile) {
    Start(cache_.values, cache_.value_scales, tile + first_row_, slots_.values);
    block_ = rows_.BlockOf(tile + kKeys + first_row_);
  }

  __device__ void Start(const void* tensor, const std::uint16_t* scales, int first, Slot& slot) {
    if constexpr (kInt8) {
      rows_.Copy(tensor, block_, first, &slots_.stage.rows[first_row_]);
      rows_.CopyScales(scales, block_, first, &slots_.stage.scales[first_row_]);
    } else {
      rows_.Copy(tensor, block_, first, &slot.rows[first_row_]);
    }
    gpu::CommitCopies();
  }

  // The warp's rows of the stage.
  __device__ void Convert(Slot& slot, int first) const {
    const auto& stage = slots_.stage;
    constexpr int kCodePieces = kDim / 8;
    const int lane = gpu::LaneId();
#pragma unroll 2
    for (int begin = 0; begin < kWarpKeys * kCodePieces; begin += 32) {
      const int row = first_row_ + (begin + lane) / kCodePieces;
      const int column = (begin + lane) % kCodePieces * 8;
      const uint2 codes = *reinterpret_cast<const uint2*>(&stage.rows[row][column]);
      *reinterpret_cast<uint4*>(&slot.rows[row][column]) = {CodesToBf16(codes.x), CodesToBf16(codes.x >> 16),
                                                            CodesToBf16(codes.y), CodesToBf16(codes.y >> 16)};
    }
    static_assert(kWarpKeys * kCodePieces % 32 == 0);
    if (lane < kWarpKeys) {
      // A scale that was copied with its neighbour's may be anything.
      const int row = first_row_ + lane;
      const bool valid = first + row >= source_.begin && first + row < source_.end;
      slot.scales[row] = valid ? __half2float(__ushort_as_half(stage.scales[row])) : 0.0f;
    }
  }

  const KvCache& cache_;
  const KvSource& source_;
  Slots& slots_;
  const KvRows<kDim, kElement, kWarpKeys> rows_;
  const int first_row_;  // of the warp's in a tile
  std::int32_t block_;   // of the warp's rows in the tile whose keys or values are started next
};

}  // namespace berth::cuda
