// The part of a warp in prefill attention: it multiplies its query rows with tiles of keys and values on the tensor
// cores and keeps a running softmax (FlashAttention-2, Dao, arXiv:2307.08691). Device code of paged_prefill.cu.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/prefill_load.h"
#include "kernels/gpu.h"
#include "kernels/params/paged_prefill.h"

namespace berth::cuda {

template <int kDim, KvElement kElement>
struct PrefillShared {
  // First the queries, then what the rows became. Padded as the slots are.
  alignas(16) std::uint16_t rows[PrefillSizes<kDim>::kRows][kDim + 8];
  PrefillSlots<kDim, kElement> slots;
  PrefillBlock block;
  int positions[PrefillSizes<kDim>::kRows];  // of the rows; behind the last one as of that
};

// Lane l is in group g = l / 4 at place t = l % 4: rows g and g + 8 of each fragment are its own (gpu.h, MmaBf16).
template <int kDim, KvElement kElement>
class PrefillWarp {
 public:
  using Sizes = PrefillSizes<kDim>;
  using Shared = PrefillShared<kDim, kElement>;
  using Slot = PrefillSlot<kDim, kElement>;
  static constexpr int kKeys = Sizes::kKeys;
  static constexpr int kFragments = Sizes::kRowFragments;
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  using Scores = float[kFragments][kKeys / 8][4];

  // Copies the warp's queries as a part of its next group of copies.
  __device__ PrefillWarp(const PagedPrefillParams& params, Shared& shared)
      : params_(params),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        first_row_(static_cast<int>(threadIdx.x / 32) * Sizes::kWarpRows),
        scale_(params.scale * 1.4426950408889634f) {  // log2(e)
    for (auto& rows : highest_) rows[0] = rows[1] = -INFINITY;
    const PrefillBlock& block = shared.block;
    if (lane_ < Sizes::kWarpRows) {
      shared.positions[first_row_ + lane_] = block.PositionOf(min(first_row_ + lane_, block.rows - 1));
    }
    __syncwarp();
    ForEachPiece(params.q_stride, [this](std::uint16_t* piece, std::int64_t at, bool valid) {
      gpu::CopyAsync<16>(piece, params_.q + (valid ? at : 0), valid);
    });
  }

  // A row of the warp attends to a position of the tile that begins at `first`.
  __device__ bool Sees(int first) const {
    return first <= LastPosition() && first + kKeys > FirstAttended(FirstPosition()) && first_row_ < shared_.block.rows;
  }

  // Scores of the tile's keys to weights 2^(score - highest), with what was summed so far brought to the new highest.
  __device__ void Score(const Slot& keys, int first, Scores& scores) {
    MultiplyKeys(keys, scores);
    if constexpr (kInt8) ScaleColumns(keys, scores);
    if (first + kKeys - 1 > FirstPosition() || first < FirstAttended(LastPosition())) Mask(first, scores);
    Normalize(scores);
  }

  // values_ += weights · values; the weights' fragments are the scores' as they are.
  __device__ void AddValues(const Slot& values, const Scores& weights) {
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      std::uint32_t a[kFragments][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 scales = ScalesOf(values, k / 8 + half);
#pragma unroll
        for (int m = 0; m < kFragments; ++m) {
          const float(&w)[4] = weights[m][k / 8 + half];
          a[m][2 * half] = gpu::PackBf16(w[0] * scales.x, w[1] * scales.y);
          a[m][2 * half + 1] = gpu::PackBf16(w[2] * scales.x, w[3] * scales.y);
        }
      }
#pragma unroll
      for (int dim = 0; dim < kDim; dim += 16) {
        std::uint32_t b[4];
        gpu::LoadMatrixTransposed(b, &values.rows[k + lane_ % 16][dim + lane_ / 16 * 8]);
#pragma unroll
        for (int m = 0; m < kFragments; ++m) {
          gpu::MmaBf16(values_[m][dim / 8], a[m], {b[0], b[1]});
          gpu::MmaBf16(values_[m][dim / 8 + 1], a[m], {b[2], b[3]});
        }
      }
    }
  }

  // Through shared memory, whose rows are the warp's own.
  __device__ void StoreOutput() {
    __syncwarp();  // all lanes have read the queries
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = sum_[m][half];
        sum += __shfl_xor_sync(gpu::kAllLanes, sum, 1);
        sum += __shfl_xor_sync(gpu::kAllLanes, sum, 2);
        const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        std::uint16_t* row = shared_.rows[first_row_ + 16 * m + 8 * half + lane_ / 4];
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          *reinterpret_cast<std::uint32_t*>(&row[8 * n + lane_ % 4 * 2]) =
              gpu::PackBf16(values_[m][n][2 * half] * inverse, values_[m][n][2 * half + 1] * inverse);
        }
      }
    }
    __syncwarp();  // before other lanes' elements are read
    const std::int64_t stride = static_cast<std::int64_t>(params_.num_q_heads) * kDim;
    ForEachPiece(stride, [this](const std::uint16_t* piece, std::int64_t at, bool valid) {
      if (valid) *reinterpret_cast<uint4*>(params_.output + at) = *reinterpret_cast<const uint4*>(piece);
    });
  }

 private:
  // The lane's pieces of 16 bytes of the warp's rows: function(piece, its place in a tensor whose tokens are `stride`
  // apart, whether the row is one of the block's).
  template <typename Function>
  __device__ void ForEachPiece(std::int64_t stride, Function function) const {
    constexpr int kPieces = kDim / 8;
    const PrefillBlock& block = shared_.block;
#pragma unroll 2
    for (int piece = lane_; piece < Sizes::kWarpRows * kPieces; piece += 32) {
      const int row = first_row_ + piece / kPieces;
      const int column = piece % kPieces * 8;
      const int token = shared_.positions[row] - block.first_position;
      const int head = block.kv_head * block.group + block.first_row + row - token * block.group;
      function(&shared_.rows[row][column], (block.first_token + token) * stride + head * kDim + column,
               row < block.rows);
    }
  }

  // Of the warp's first and last row.
  __device__ int FirstPosition() const { return shared_.positions[first_row_]; }
  __device__ int LastPosition() const { return shared_.positions[first_row_ + Sizes::kWarpRows - 1]; }

  __device__ int FirstAttended(int position) const {
    return params_.window > 0 ? max(0, position - params_.window + 1) : 0;
  }

  // scores = queries · keysᵀ
  __device__ void MultiplyKeys(const Slot& keys, Scores& scores) const {
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
      }
    }
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      std::uint32_t a[kFragments][4];
#pragma unroll
      for (int m = 0; m < kFragments; ++m) {
        gpu::LoadMatrix(a[m], &shared_.rows[first_row_ + 16 * m + lane_ % 16][k + lane_ / 16 * 8]);
      }
#pragma unroll
      for (int n = 0; n < kKeys; n += 16) {
        std::uint32_t b[4];
        gpu::LoadMatrix(b, &keys.rows[n + lane_ % 8 + lane_ / 16 * 8][k + lane_ / 8 % 2 * 8]);
#pragma unroll
        for (int m = 0; m < kFragments; ++m) {
          gpu::MmaBf16(scores[m][n / 8], a[m], {b[0], b[1]});
          gpu::MmaBf16(scores[m][n / 8 + 1], a[m], {b[2], b[3]});
        }
      }
    }
  }

  // Of the lane's two columns of product n: its keys' or values' scales, which its codes were not multiplied with.
  __device__ float2 ScalesOf(const Slot& slot, int n) const {
    if constexpr (kInt8) {
      return *reinterpret_cast<const float2*>(&slot.scales[8 * n + lane_ % 4 * 2]);
    } else {
      return {1.0f, 1.0f};
    }
  }

  __device__ void ScaleColumns(const Slot& keys, Scores& scores) const {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      const float2 scales = ScalesOf(keys, n);
#pragma unroll
      for (int m = 0; m < kFragments; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] *= i % 2 == 0 ? scales.x : scales.y;
      }
    }
  }

  __device__ void Mask(int first, Scores& scores) const {
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int last = shared_.positions[first_row_ + 16 * m + 8 * half + lane_ / 4];
        const int begin = FirstAttended(last);
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int position = first + 8 * n + lane_ % 4 * 2 + j;
            if (position > last || position < begin) scores[m][n][2 * half + j] = -INFINITY;
          }
        }
      }
    }
  }

  // A tile that is masked for a row changes nothing of it: the correction is exactly 1, the weights are 0.
  __device__ void Normalize(Scores& scores) {
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float highest = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          highest = fmaxf(highest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(gpu::kAllLanes, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(gpu::kAllLanes, highest, 2));
        highest = fmaxf(highest_[m][half], highest * scale_);
        const float base = highest == -INFINITY ? 0.0f : highest;  // no position yet
        const float correction = gpu::Exp2(highest_[m][half] - base);
        highest_[m][half] = highest;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& score = scores[m][n][2 * half + j];
            score = gpu::Exp2(fmaf(score, scale_, -base));
            sum += score;
          }
        }
        sum_[m][half] = fmaf(sum_[m][half], correction, sum);
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          values_[m][n][2 * half] *= correction;
          values_[m][n][2 * half + 1] *= correction;
        }
      }
    }
  }

  const PagedPrefillParams& params_;
  Shared& shared_;
  const int lane_;
  const int first_row_;  // of the block's
  const float scale_;
  // Of rows g and g + 8 of each fragment.
  float highest_[kFragments][2];  // scores times scale_
  float sum_[kFragments][2] = {};
  float values_[kFragments][kDim / 8][4] = {};
};

}  // namespace berth::cuda
