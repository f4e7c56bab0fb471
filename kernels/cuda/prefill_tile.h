// The part of a warp in prefill attention: it multiplies its query rows with tiles of keys and values on the tensor
// cores and keeps a running softmax (FlashAttention-2, Dao, arXiv:2307.08691). Device code of paged_prefill.cu.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

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

// Lane l is in group g = l / 4 at place t = l % 4: rows g + 8r of the warp are its own, two of each fragment (gpu.h,
// MmaBf16).
template <int kDim, KvElement kElement>
class PrefillWarp {
 public:
  using Sizes = PrefillSizes<kDim>;
  using Shared = PrefillShared<kDim, kElement>;
  static_assert(sizeof(Shared) <= gpu::kPortableSharedBytes);
  using Slot = PrefillSlot<kDim, kElement>;
  static constexpr int kKeys = Sizes::kKeys;
  static constexpr int kFragments = Sizes::kRowFragments;
  static constexpr int kLaneRows = 2 * kFragments;
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  // Of a multiprocessor at once, by their registers. Codes' weights take more of them.
  static constexpr int kBlocks = kDim == 64 && !kInt8 ? 3 : 2;
  using Scores = float[kFragments][kKeys / 8][4];
  // What a tile's values are multiplied with: fragments of bfloat16 (gpu.h, MmaBf16), for 16 positions each. Those of
  // codes still have to be multiplied with the values' scales.
  using Weights = std::conditional_t<kInt8, Scores, std::uint32_t[kFragments][kKeys / 16][4]>;

  // Copies the warp's queries as a part of its next group of copies.
  __device__ PrefillWarp(const PagedPrefillParams& params, Shared& shared)
      : params_(params),
        shared_(shared),
        first_row_(static_cast<int>(threadIdx.x / 32) * Sizes::kWarpRows),
        scale_(params.scale * 1.4426950408889634f) {  // log2(e)
    const PrefillBlock& block = shared.block;
    const int lane = gpu::LaneId();
    if (lane < Sizes::kWarpRows) {
      shared.positions[first_row_ + lane] = block.PositionOf(min(first_row_ + lane, block.rows - 1));
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

  // Weights 2^(score - highest) of the tile's keys, with what was summed so far brought to the new highest.
  __device__ void Score(const Slot& keys, int first, Weights& weights) {
    Scores scores;
    MultiplyKeys(keys, scores);
    if constexpr (kInt8) ScaleColumns(keys, scores);
    if (first + kKeys - 1 > FirstPosition() || first < FirstAttended(LastPosition())) Mask(first, scores);
    Normalize(scores);
    // A product's result lies in the lanes as the next one's left operand must.
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        if constexpr (kInt8) {
#pragma unroll
          for (int i = 0; i < 4; ++i) weights[m][n][i] = scores[m][n][i];
        } else {
          weights[m][n / 2][n % 2 * 2] = gpu::PackBf16(scores[m][n][0], scores[m][n][1]);
          weights[m][n / 2][n % 2 * 2 + 1] = gpu::PackBf16(scores[m][n][2], scores[m][n][3]);
        }
      }
    }
  }

  // values_ += weights · values
  __device__ void AddValues(const Slot& values, const Weights& weights) {
    const int lane = gpu::LaneId();
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      std::uint32_t a[kFragments][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kInt8) {
          const float2 scales = ScalesOf(values, k / 8 + i / 2, lane);
#pragma unroll
          for (int m = 0; m < kFragments; ++m) {
            const float(&w)[4] = weights[m][k / 8 + i / 2];
            a[m][i] = gpu::PackBf16(w[i % 2 * 2] * scales.x, w[i % 2 * 2 + 1] * scales.y);
          }
        } else {
#pragma unroll
          for (int m = 0; m < kFragments; ++m) a[m][i] = weights[m][k / 16][i];
        }
      }
#pragma unroll
      for (int dim = 0; dim < kDim; dim += 16) {
        std::uint32_t b[4];
        gpu::LoadMatrixTransposed(b, &values.rows[k + lane % 16][dim + lane / 16 * 8]);
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
    const int lane = gpu::LaneId();
    __syncwarp();  // all lanes have read the queries
    const float inverse = sum_ > 0.0f ? 1.0f / sum_ : 0.0f;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const float factor = OfRow(inverse, r, lane);
      std::uint16_t* row = shared_.rows[first_row_ + 8 * r + lane / 4];
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float(&values)[4] = values_[r / 2][n];
        *reinterpret_cast<std::uint32_t*>(&row[8 * n + lane % 4 * 2]) =
            gpu::PackBf16(values[r % 2 * 2] * factor, values[r % 2 * 2 + 1] * factor);
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
    const int lane = gpu::LaneId();
    constexpr int kPieces = kDim / 8;
    const PrefillBlock& block = shared_.block;
#pragma unroll 2
    for (int piece = lane; piece < Sizes::kWarpRows * kPieces; piece += 32) {
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
    const int lane = gpu::LaneId();
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
        gpu::LoadMatrix(a[m], &shared_.rows[first_row_ + 16 * m + lane % 16][k + lane / 16 * 8]);
      }
#pragma unroll
      for (int n = 0; n < kKeys; n += 16) {
        std::uint32_t b[4];
        gpu::LoadMatrix(b, &keys.rows[n + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
#pragma unroll
        for (int m = 0; m < kFragments; ++m) {
          gpu::MmaBf16(scores[m][n / 8], a[m], {b[0], b[1]});
          gpu::MmaBf16(scores[m][n / 8 + 1], a[m], {b[2], b[3]});
        }
      }
    }
  }

  // Of the lane's two columns of product n: its keys' or values' scales, which its codes were not multiplied with.
  __device__ static float2 ScalesOf(const Slot& slot, int n, int lane) {
    return *reinterpret_cast<const float2*>(&slot.scales[8 * n + lane % 4 * 2]);
  }

  __device__ void ScaleColumns(const Slot& keys, Scores& scores) const {
    const int lane = gpu::LaneId();
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      const float2 scales = ScalesOf(keys, n, lane);
#pragma unroll
      for (int m = 0; m < kFragments; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] *= i % 2 == 0 ? scales.x : scales.y;
      }
    }
  }

  __device__ void Mask(int first, Scores& scores) const {
    const int lane = gpu::LaneId();
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int last = shared_.positions[first_row_ + 8 * r + lane / 4];
      const int begin = FirstAttended(last);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int position = first + 8 * n + lane % 4 * 2 + j;
          if (position > last || position < begin) scores[r / 2][n][r % 2 * 2 + j] = -INFINITY;
        }
      }
    }
  }

  // A tile that is masked for a row changes nothing of it: the correction is exactly 1, the weights are 0.
  __device__ void Normalize(Scores& scores) {
    const int lane = gpu::LaneId();
    float rows[kLaneRows];
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      rows[r] = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        const float(&pair)[4] = scores[r / 2][n];
        rows[r] = fmaxf(rows[r], fmaxf(pair[r % 2 * 2], pair[r % 2 * 2 + 1]));
      }
    }
    const float highest = fmaxf(highest_, JoinRows(rows, lane, [](float a, float b) { return fmaxf(a, b); }) * scale_);
    const float own_base = highest == -INFINITY ? 0.0f : highest;  // no position yet
    const float own_correction = gpu::Exp2(highest_ - own_base);
    highest_ = highest;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const float base = OfRow(own_base, r, lane);
      rows[r] = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[r / 2][n][r % 2 * 2 + j];
          score = gpu::Exp2(fmaf(score, scale_, -base));
          rows[r] += score;
        }
      }
      const float correction = OfRow(own_correction, r, lane);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        values_[r / 2][n][r % 2 * 2] *= correction;
        values_[r / 2][n][r % 2 * 2 + 1] *= correction;
      }
    }
    sum_ = fmaf(sum_, own_correction, JoinRows(rows, lane, [](float a, float b) { return a + b; }));
  }

  // From the four lanes' parts of each of their rows: lane t's result is row t % kLaneRows's.
  template <typename Operation>
  __device__ static float JoinRows(const float (&parts)[kLaneRows], int lane, Operation operation) {
    const bool odd = lane % 2 != 0;
    if constexpr (kLaneRows == 4) {
      const bool upper = lane % 4 >= 2;
      const float first = Exchange(parts[0], parts[2], upper, 2, operation);
      const float second = Exchange(parts[1], parts[3], upper, 2, operation);
      return Exchange(first, second, odd, 1, operation);
    } else {
      const float part = Exchange(parts[0], parts[1], odd, 1, operation);
      return operation(part, __shfl_xor_sync(gpu::kAllLanes, part, 2));
    }
  }

  // Of two rows' parts one for each of two lanes that are `distance` apart.
  template <typename Operation>
  __device__ static float Exchange(float low, float high, bool keep_high, int distance, Operation operation) {
    const float other = __shfl_xor_sync(gpu::kAllLanes, keep_high ? low : high, distance);
    return operation(keep_high ? high : low, other);
  }

  // What the lane that keeps row r has.
  __device__ static float OfRow(float own, int r, int lane) {
    return __shfl_sync(gpu::kAllLanes, own, lane / 4 * 4 + r);
  }

  const PagedPrefillParams& params_;
  Shared& shared_;
  const int first_row_;  // of the block's
  const float scale_;
  // Of row 8r + g of the warp for r = t % kLaneRows: registers are scarce.
  float highest_ = -INFINITY;  // score times scale_
  float sum_ = 0.0f;
  float values_[kFragments][kDim / 8][4] = {};
};

}  // namespace berth::cuda
