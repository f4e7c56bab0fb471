// What a block of prefill attention works on, and how tiles of keys and values come to its shared memory. Device code
// of paged_prefill.cu.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/int8_codes.h"
#include "kernels/cuda/kv_address.h"
#include "kernels/gpu.h"
#include "kernels/params/paged_prefill.h"

namespace berth::cuda {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = kPrefillWarps * 32;

// Sizes by head dimension: what fits in 255 registers a thread and, twice if it can, in a multiprocessor's memory.
template <int kDim>
struct PrefillSizes {
  static_assert(kDim % 16 == 0 && kDim <= 256);
  static constexpr int kRowFragments = kDim <= 128 ? 2 : 1;  // 16 rows each, of a warp
  static constexpr int kWarpRows = 16 * kRowFragments;
  static constexpr int kRows = kPrefillWarps * kWarpRows;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;  // positions of a tile
  static constexpr int kPairs = kDim < 128 ? 2 : 1;    // of a tile of keys and one of values in shared memory
};

// A head dimension whose tile of rows takes too many registers leaves the rest of PrefillTile's rows to other blocks.
// Lies in shared memory: registers are scarce.
struct PrefillBlock {
  KvAddress address;
  int kv_head;
  int group;
  int first_token;     // of the sequence's, in the step
  int first_position;  // of that token
  int first_row;       // of the sequence's
  int rows;            // from there on; none or fewer: no block
  int begin;           // the first position that a row attends to
  int end;             // behind the last one

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
  PrefillBlock block{.address = KvAddress(params.cache, table, kv_head),
                     .kv_head = kv_head,
                     .group = group,
                     .first_token = first_token,
                     .first_position = params.kv_lengths[tile.sequence] - tokens,
                     .first_row = first_row,
                     .rows = min(tokens * group - first_row, kRows),
                     .begin = 0,
                     .end = 0};
  if (params.window > 0) block.begin = max(0, block.PositionOf(0) - params.window + 1);
  block.end = block.PositionOf(block.rows - 1) + 1;
  return block;
}

enum class PrefillTensor : int { kKeys = 0, kValues = 1 };

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

// Every load but the one in use may be under way.
template <int kDim>
struct PrefillSlots<kDim, KvElement::kBf16> {
  static constexpr int kAhead = 2 * PrefillSizes<kDim>::kPairs - 1;
  PrefillSlot<kDim, KvElement::kBf16> slots[PrefillSizes<kDim>::kPairs][2];  // by PrefillTensor
};

// Codes as they come; each is made a bfloat16 once, by the warp that copied it.
template <int kDim>
struct PrefillSlots<kDim, KvElement::kInt8> {
  static constexpr int kAhead = PrefillSizes<kDim>::kPairs;
  struct alignas(16) Stage {
    std::uint8_t rows[PrefillSizes<kDim>::kKeys][kDim];
    std::uint16_t scales[PrefillSizes<kDim>::kKeys];
  };
  PrefillSlot<kDim, KvElement::kInt8> slots[1][2];
  Stage stages[kAhead];
};

// Brings the keys and the values of the block's tiles in turn, from the tile of position block.begin on. Tiles lie at
// multiples of kKeys. Each warp copies rows of its own, the same of every tile.
template <int kDim, KvElement kElement>
class PrefillLoader {
 public:
  using Sizes = PrefillSizes<kDim>;
  using Slots = PrefillSlots<kDim, kElement>;
  using Slot = PrefillSlot<kDim, kElement>;
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  static constexpr int kKeys = Sizes::kKeys;

  __device__ PrefillLoader(const PagedPrefillParams& params, const PrefillBlock& block, Slots& slots)
      : cache_(params.cache),
        block_(block),
        slots_(slots),
        lane_(static_cast<int>(threadIdx.x % 32)),
        first_row_(static_cast<int>(threadIdx.x / 32) * kWarpKeys) {
    const int first = block.begin / kKeys * kKeys;
    FetchBlock(first);
    Start<PrefillTensor::kKeys>(first);
    if constexpr (kAhead > 1) Start<PrefillTensor::kValues>(first);
    if constexpr (kAhead > 2) Start<PrefillTensor::kKeys>(first + kKeys);
    static_assert(kAhead <= 3);
  }

  // The next load, of the tile that begins at `first`, for all threads of the block: the keys and the values of a tile
  // in turn. The load before it may be overwritten from here on.
  template <PrefillTensor kTensor>
  __device__ const Slot& Next(int first) {
    constexpr int kStarted = static_cast<int>(kTensor) + kAhead;
    constexpr auto kStartedTensor = static_cast<PrefillTensor>(kStarted % 2);
    const int started_tile = first + kStarted / 2 * kKeys;
    gpu::WaitCopies<kAhead - 1>();
    Slot& slot = slots_.slots[PairOf(first)][static_cast<int>(kTensor)];
    if constexpr (kInt8) {
      __syncwarp();  // the other lanes' copies
      Convert(slots_.stages[static_cast<int>(kTensor) % kAhead], first, slot);
      __syncwarp();  // all lanes have read the stage
      Start<kStartedTensor>(started_tile);
      __syncthreads();
    } else {
      __syncthreads();
      Start<kStartedTensor>(started_tile);
    }
    return slot;
  }

 private:
  using Element = std::conditional_t<kInt8, std::uint8_t, std::uint16_t>;
  static constexpr int kAhead = Slots::kAhead;  // loads under way
  static constexpr int kWarpKeys = kKeys / kPrefillWarps;
  static constexpr int kPieceElements = 16 / sizeof(Element);
  static constexpr int kPieces = kDim / kPieceElements;  // of a row

  __device__ static int PairOf(int first) { return kInt8 || Sizes::kPairs == 1 ? 0 : first / kKeys % Sizes::kPairs; }

  // All of the warp's rows, from position `first` on, are attended to and lie in one block.
  __device__ bool InOneBlock(int first) const {
    return first >= block_.begin && first + kWarpKeys <= block_.end && cache_.block_tokens >= kWarpKeys;
  }

  // The block id of the warp's next rows, long before they are copied.
  __device__ void FetchBlock(int tile) {
    if (InOneBlock(tile + first_row_)) block_id_ = block_.address.BlockOf(tile + first_row_);
  }

  // A load's copies, if there is such a tile; a group of copies in any case.
  template <PrefillTensor kTensor>
  __device__ void Start(int tile) {
    constexpr bool kValues = kTensor == PrefillTensor::kValues;
    if (tile < block_.end) {
      const auto* source = static_cast<const Element*>(kValues ? cache_.values : cache_.keys);
      if constexpr (kInt8) {
        auto& stage = slots_.stages[static_cast<int>(kTensor) % kAhead];
        CopyRows(source, tile + first_row_, &stage.rows[first_row_]);
        CopyScales(kValues ? cache_.value_scales : cache_.key_scales, tile + first_row_, &stage.scales[first_row_]);
      } else {
        CopyRows(source, tile + first_row_, &slots_.slots[PairOf(tile)][static_cast<int>(kTensor)].rows[first_row_]);
      }
      if constexpr (kValues) FetchBlock(tile + kKeys);
    }
    gpu::CommitCopies();
  }

  template <typename Row>
  __device__ void CopyRows(const Element* source, int first, Row* rows) const {
    if (!InOneBlock(first)) return CopyRowsOneByOne(source, first, rows);
    // A head's rows of a block are contiguous.
    constexpr int kTotal = kWarpKeys * kPieces;
    const Element* run = source + block_.address.Row(cache_, block_id_, first) + lane_ * kPieceElements;
#pragma unroll
    for (int begin = 0; begin < kTotal; begin += 32) {
      if (kTotal % 32 != 0 && begin + lane_ >= kTotal) break;
      // Where it can be, a place is the lane's with a constant added.
      constexpr bool kConstantSteps = 32 % kPieces == 0;
      const int row = kConstantSteps ? begin / kPieces + lane_ / kPieces : (begin + lane_) / kPieces;
      const int column = (kConstantSteps ? lane_ : begin + lane_) % kPieces * kPieceElements;
      gpu::CopyAsync<16>(&rows[row][column], run + begin * kPieceElements);
    }
  }

  // Rows that nobody attends to become zeros: what lies there may be no number, and 0 · NaN is none.
  template <typename Row>
  __device__ void CopyRowsOneByOne(const Element* source, int first, Row* rows) const {
#pragma unroll 1
    for (int piece = lane_; piece < kWarpKeys * kPieces; piece += 32) {
      const int row = piece / kPieces;
      const int column = piece % kPieces * kPieceElements;
      const int position = first + row;
      const bool valid = position >= block_.begin && position < block_.end;
      const std::int64_t at =
          valid ? block_.address.Row(cache_, block_.address.BlockOf(position), position) + column : 0;
      gpu::CopyAsync<16>(&rows[row][column], source + at, valid);
    }
  }

  // Two at once: a pair never leaves its block.
  __device__ void CopyScales(const std::uint16_t* source, int first, std::uint16_t* scales) const {
    const int row = lane_ * 2;
    if (row >= kWarpKeys) return;
    const int position = first + row;
    const bool valid = position + 1 >= block_.begin && position < block_.end;
    std::int64_t at = 0;
    if (valid)
      at = block_.address.Scale(cache_, InOneBlock(first) ? block_id_ : block_.address.BlockOf(position), position);
    gpu::CopyAsync<4>(&scales[row], source + at, valid);
  }

  // The warp's rows of a stage.
  template <typename Stage>
  __device__ void Convert(const Stage& stage, int first, Slot& slot) const {
    constexpr int kCodePieces = kDim / 8;
#pragma unroll 4
    for (int begin = 0; begin < kWarpKeys * kCodePieces; begin += 32) {
      const int row = first_row_ + (begin + lane_) / kCodePieces;
      const int column = (begin + lane_) % kCodePieces * 8;
      const uint2 codes = *reinterpret_cast<const uint2*>(&stage.rows[row][column]);
      *reinterpret_cast<uint4*>(&slot.rows[row][column]) = {CodesToBf16(codes.x), CodesToBf16(codes.x >> 16),
                                                            CodesToBf16(codes.y), CodesToBf16(codes.y >> 16)};
    }
    static_assert(kWarpKeys * kCodePieces % 32 == 0);
    if (lane_ < kWarpKeys) {
      // A scale that was copied with its neighbour's may be anything.
      const int row = first_row_ + lane_;
      const bool valid = first + row >= block_.begin && first + row < block_.end;
      slot.scales[row] = valid ? __half2float(__ushort_as_half(stage.scales[row])) : 0.0f;
    }
  }

  const KvCache& cache_;
  const PrefillBlock& block_;
  Slots& slots_;
  const int lane_;
  const int first_row_;  // of the warp's in a tile
  std::int32_t block_id_ = 0;
};

}  // namespace berth::cuda
