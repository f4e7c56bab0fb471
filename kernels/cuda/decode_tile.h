// The part of a warp in decode attention: it loads tiles of 16 tokens, multiplies them with up to 16 query heads on the
// tensor cores and keeps a running softmax. Device code of paged_decode.cu.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/int8_codes.h"
#include "kernels/cuda/kv_address.h"
#include "kernels/cuda/kv_rows.h"
#include "kernels/gpu.h"
#include "kernels/params/paged_decode.h"

namespace berth::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = kDecodeWarps * 32;
inline constexpr int kDecodeRows = 16;    // query heads of a tile
inline constexpr int kDecodeTokens = 16;  // positions of a tile

// What a block of threads works on.
struct DecodeChunk {
  int number;  // of the sequence's chunks
  int sequence;
  int first_q_head;
  int rows;         // query heads from there
  int length;       // of the sequence
  KvSource source;  // the chunk's positions
};

__device__ inline DecodeChunk FindChunk(const PagedDecodeParams& params) {
  const int number = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.z);
  const int group = params.num_q_heads / params.cache.num_kv_heads;
  const int row_tiles = (group + kDecodeRows - 1) / kDecodeRows;
  const int kv_head = static_cast<int>(blockIdx.y) / row_tiles;
  const int first_row = static_cast<int>(blockIdx.y) % row_tiles * kDecodeRows;
  const int length = params.kv_lengths[sequence];
  const int begin = number * params.chunk_tokens;
  const std::int32_t* table = params.block_tables + static_cast<std::int64_t>(sequence) * params.max_blocks;
  return {.number = number,
          .sequence = sequence,
          .first_q_head = kv_head * group + first_row,
          .rows = min(group - first_row, kDecodeRows),
          .length = length,
          .source = {.address = KvAddress(params.cache, table, kv_head),
                     .begin = begin,
                     .end = min(begin + params.chunk_tokens, length)}};
}

template <int kDim, KvElement kElement>
struct DecodeStage;

// Rows are padded by 16 bytes, so that the eight rows of a matrix lie in different banks.
template <int kDim>
struct alignas(16) DecodeStage<kDim, KvElement::kBf16> {
  std::uint16_t keys[kDecodeTokens][kDim + 8];
  std::uint16_t values[kDecodeTokens][kDim + 8];
};

template <int kDim>
struct alignas(16) DecodeStage<kDim, KvElement::kInt8> {
  std::uint8_t keys[kDecodeTokens][kDim + 16];
  std::uint8_t values[kDecodeTokens][kDim + 16];
  std::uint16_t key_scales[kDecodeTokens];
  std::uint16_t value_scales[kDecodeTokens];
};

template <int kDim, KvElement kElement, int kStageCount>
struct DecodeShared {
  static constexpr int kHeadDim = kDim;

  alignas(16) std::uint16_t queries[kDecodeRows][kDim + 8];
  // First the tiles, then what the warps made of them.
  union {
    DecodeStage<kDim, kElement> stages[kDecodeWarps][kStageCount];
    float joined[kDecodeWarps][kDecodeRows][kDim];
  } memory;
  float highest[kDecodeWarps][kDecodeRows];  // scores times log2(e)
  float sum[kDecodeWarps][kDecodeRows];
};

// Lane l is in group g = l / 4 at place t = l % 4: rows g and g + 8 of scores and results are its own (gpu.h, MmaBf16).
template <int kDim, KvElement kElement>
class DecodeTile {
 public:
  static_assert(kDim % 16 == 0);
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  static constexpr int kStages = kDim <= 96 ? 3 : kDim <= 128 || kInt8 ? 2 : 1;
  using Shared = DecodeShared<kDim, kElement, kStages>;
  static_assert(sizeof(Shared) <= gpu::kPortableSharedBytes);

  __device__ DecodeTile(const PagedDecodeParams& params, const DecodeChunk& chunk, Shared& shared)
      : params_(params),
        chunk_(chunk),
        shared_(shared),
        rows_(params.cache, chunk.source),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x / 32)) {
    const int tokens = chunk.source.end - chunk.source.begin - warp_ * kDecodeTokens;
    constexpr int kStep = kDecodeWarps * kDecodeTokens;
    count_ = tokens > 0 ? (tokens + kStep - 1) / kStep : 0;
  }

  // The warp's tiles.
  __device__ int count() const { return count_; }

  // Starts the copies of as many tiles as there are stages.
  __device__ void StartFirstLoads() {
    std::int32_t blocks[kStages];
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) blocks[stage] = rows_.BlockOf(FirstPosition(stage));
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) StartLoad(stage, blocks[stage]);
    next_block_ = rows_.BlockOf(FirstPosition(kStages));
  }

  // Copies tile `number`, of which the tile kStages before is done with, if there is one; in ascending order.
  __device__ void StartLoad(int number) {
    StartLoad(number, next_block_);
    next_block_ = rows_.BlockOf(FirstPosition(number + 1));
  }

  // All threads of the block.
  __device__ void LoadQueries() {
    constexpr int kPieces = kDim / 8;
    const std::uint16_t* queries =
        params_.q + chunk_.sequence * params_.q_stride + static_cast<std::int64_t>(chunk_.first_q_head) * kDim;
    for (int piece = static_cast<int>(threadIdx.x); piece < kDecodeRows * kPieces; piece += kDecodeThreads) {
      const int row = piece / kPieces;
      const int column = piece % kPieces * 8;
      const uint4 zeros = {0, 0, 0, 0};
      *reinterpret_cast<uint4*>(&shared_.queries[row][column]) =
          row < chunk_.rows ? *reinterpret_cast<const uint4*>(queries + row * kDim + column) : zeros;
    }
    __syncthreads();
  }

  __device__ void Attend(int number) {
    const Stage& stage = StageOf(number);
    float scores[2][4] = {};  // of tokens 0 to 7 and 8 to 15
    Score(stage, scores);
    if constexpr (kInt8) ScaleByToken(stage.key_scales, FirstPosition(number), scores);
    Normalize(FirstPosition(number), scores);
    if constexpr (kInt8) ScaleByToken(stage.value_scales, FirstPosition(number), scores);
    AddValues(stage, scores);
  }

  // The warp's highest scores, sums and weighted values, for the whole block to join.
  __device__ void StoreJoined() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(gpu::kAllLanes, sum, 1);
      sum += __shfl_xor_sync(gpu::kAllLanes, sum, 2);
      if (lane_ % 4 == 0) {
        shared_.highest[warp_][lane_ / 4 + 8 * half] = highest_[half];
        shared_.sum[warp_][lane_ / 4 + 8 * half] = sum;
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) shared_.memory.joined[warp_][lane_ / 4 + i / 2 * 8][DimOf(n, i % 2)] = values_[n][i];
    }
  }

 private:
  using Stage = DecodeStage<kDim, kElement>;

  __device__ Stage& StageOf(int number) { return shared_.memory.stages[warp_][number % kStages]; }
  __device__ int FirstPosition(int number) const {
    return chunk_.source.begin + (number * kDecodeWarps + warp_) * kDecodeTokens;
  }

  // To its stage; a group of copies in any case.
  __device__ void StartLoad(int number, std::int32_t block) {
    if (number < count_) {
      Stage& stage = StageOf(number);
      const int first = FirstPosition(number);
      rows_.Copy(params_.cache.keys, block, first, stage.keys);
      rows_.Copy(params_.cache.values, block, first, stage.values);
      if constexpr (kInt8) {
        rows_.CopyScales(params_.cache.key_scales, block, first, stage.key_scales);
        rows_.CopyScales(params_.cache.value_scales, block, first, stage.value_scales);
      }
    }
    gpu::CommitCopies();
  }

  // scores += queries · keysᵀ
  __device__ void Score(const Stage& stage, float (&scores)[2][4]) {
    const int group = lane_ / 4;
    const int place = lane_ % 4;
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      std::uint32_t a[4];
      std::uint32_t b[4];
      if constexpr (kInt8) {
        // The order of the products' terms is free: columns 4t to 4t + 3 are taken for 2t, 2t + 1, 2t + 8 and 2t + 9 of
        // both operands, so that a lane reads its codes in one piece.
        const uint2 low = *reinterpret_cast<const uint2*>(&shared_.queries[group][k + 4 * place]);
        const uint2 high = *reinterpret_cast<const uint2*>(&shared_.queries[group + 8][k + 4 * place]);
        a[0] = low.x;
        a[1] = high.x;
        a[2] = low.y;
        a[3] = high.y;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const auto codes = *reinterpret_cast<const std::uint32_t*>(&stage.keys[group + 8 * n][k + 4 * place]);
          b[2 * n] = CodesToBf16(codes);
          b[2 * n + 1] = CodesToBf16(codes >> 16);
        }
      } else {
        gpu::LoadMatrix(a, &shared_.queries[lane_ % 16][k + lane_ / 16 * 8]);
        gpu::LoadMatrix(b, &stage.keys[lane_ % 8 + lane_ / 16 * 8][k + lane_ / 8 % 2 * 8]);
      }
      gpu::MmaBf16(scores[0], a, {b[0], b[1]});
      gpu::MmaBf16(scores[1], a, {b[2], b[3]});
    }
  }

  // Nothing is taken of positions behind the end: a scale there was copied with its neighbour's and may be anything.
  __device__ void ScaleByToken(const std::uint16_t (&scales)[kDecodeTokens], int first_position,
                               float (&scores)[2][4]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = 8 * n + lane_ % 4 * 2 + i % 2;
        const float scale = __half2float(__ushort_as_half(scales[token]));
        scores[n][i] = first_position + token < chunk_.source.end ? scores[n][i] * scale : 0.0f;
      }
    }
  }

  // Scores to weights 2^(score - highest), with what was summed so far brought to the new highest score.
  __device__ void Normalize(int first_position, float (&scores)[2][4]) {
    constexpr float kLog2E = 1.4426950408889634f;
    const float scale = params_.scale * kLog2E;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = highest_[half];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n][2 * half + j];
          const bool valid = first_position + 8 * n + lane_ % 4 * 2 + j < chunk_.source.end;
          score = valid ? score * scale : -INFINITY;
          highest = fmaxf(highest, score);
        }
      }
      highest = fmaxf(highest, __shfl_xor_sync(gpu::kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(gpu::kAllLanes, highest, 2));
      // A tile holds one valid position at least, so that highest is a number here.
      const float correction = gpu::Exp2(highest_[half] - highest);
      highest_[half] = highest;
      sum_[half] *= correction;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        values_[n][2 * half] *= correction;
        values_[n][2 * half + 1] *= correction;
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n][2 * half + j];
          score = gpu::Exp2(score - highest);
          sum_[half] += score;
        }
      }
    }
  }

  // values_ += weights · values; the weights' fragment is the scores' as it is.
  __device__ void AddValues(const Stage& stage, const float (&weights)[2][4]) {
    const std::uint32_t a[4] = {
        gpu::PackBf16(weights[0][0], weights[0][1]), gpu::PackBf16(weights[0][2], weights[0][3]),
        gpu::PackBf16(weights[1][0], weights[1][1]), gpu::PackBf16(weights[1][2], weights[1][3])};
    const int group = lane_ / 4;
    const int place = lane_ % 4;
#pragma unroll
    for (int dim = 0; dim < kDim; dim += 16) {
      std::uint32_t b[4];
      if constexpr (kInt8) {
        // Tokens 2t, 2t + 1, 2t + 8 and 2t + 9, two neighbouring dimensions each, which go to two products (DimOf).
        std::uint32_t codes[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = 2 * place + i % 2 + i / 2 * 8;
          codes[i] = *reinterpret_cast<const std::uint16_t*>(&stage.values[token][dim + 2 * group]);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const std::uint32_t first = codes[2 * r] >> (8 * n) & 0xff;
            const std::uint32_t second = codes[2 * r + 1] >> (8 * n) & 0xff;
            b[2 * n + r] = CodesToBf16(first | second << 8);
          }
        }
      } else {
        gpu::LoadMatrixTransposed(b, &stage.values[lane_ % 16][dim + lane_ / 16 * 8]);
      }
      gpu::MmaBf16(values_[dim / 8], a, {b[0], b[1]});
      gpu::MmaBf16(values_[dim / 8 + 1], a, {b[2], b[3]});
    }
  }

  // The head's dimension in column 2t + i of product n.
  __device__ int DimOf(int n, int i) const {
    const int column = lane_ % 4 * 2 + i;
    return kInt8 ? n / 2 * 16 + 2 * column + n % 2 : n * 8 + column;
  }

  const PagedDecodeParams& params_;
  const DecodeChunk& chunk_;
  Shared& shared_;
  const KvRows<kDim, kElement, kDecodeTokens> rows_;
  const int lane_;
  const int warp_;
  int count_;
  std::int32_t next_block_ = 0;  // of the next tile to be copied
  // Of rows g and g + 8.
  float highest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0.0f, 0.0f};
  float values_[kDim / 8][4] = {};
};

}  // namespace berth::cuda
