#include "kernels/cuda/quantized.h"

#include <cmath>

#include "kernels/cuda/quantized_tile.h"
#include "kernels/gpu.h"

// The product of few tokens is bound by reading the weights, of which a multiprocessor of an H200 gets some 17 bytes a
// clock (4.3 TB/s over 132 of them at 1.9 GHz): 30 weights of kQ4_0, at 18 bytes for 32. It executes 128 instructions
// of a lane a clock, so there are 4.2 for each weight. A multiply-add for each token would need them all at 4 tokens.
// So products go to the tensor cores for any number of tokens: a warp multiplies 32 × 32 codes by 8 tokens in 4
// instructions. The loop has 118 for the 32 weights of a lane (3.7 each; kQ6_K 6.2 of 6.4), half of them to unpack.
// One path for all also means that a token's result has the same bits beside any number of others.
//
// Codes are multiplied as whole numbers, exact in bfloat16, and 32 (kQ6_K: 16) products are summed before a float32
// scale: weights are never rounded.
//
// Weights go from L2 to shared memory by copies that bypass L1, so that the inputs stay in it for the blocks that
// follow: a band of 32 rows takes 2 bytes a column and token of them for 18 bytes of weights.
namespace berth::cuda {
namespace {

constexpr int kTileTokens = 8;
constexpr int kMatmulWarps = 16;
constexpr int kMatmulThreads = kMatmulWarps * 32;
// Steps that a warp has under way: 16 · 4 · 576 bytes of kQ4_0 are 37 KB, half as much again as a multiprocessor gets
// in the latency of memory (17 bytes · some 1,300 clocks).
constexpr int kStages = 4;

template <QuantizedType kType, int kTokenTiles>
struct MatmulShared {
  static constexpr int kStageBytes = kBandTiles * (kTileLayout<kType>.size + kTileLayout<kType>.block_scales);
  // Token by token, the rows of a band. 36: lanes with two tokens each store to different banks.
  using Sums = float[kTokenTiles * kTileTokens][kBandRows + 4];
  // First the tiles, then what the warps made of them.
  union {
    alignas(16) std::byte stages[kMatmulWarps][kStages][kStageBytes];
    Sums sums[kMatmulWarps];
  } memory;
};

// The part of a warp: every kMatmulWarps-th step of a band, each named by its first column. Lane l is in group g = l /
// 4 at place t = l % 4: rows g and g + 8 of a tile, token g of the inputs and tokens 2t, 2t + 1 of the sums are its own
// (gpu.h, MmaBf16).
template <QuantizedType kType, int kTokenTiles>
class MatmulWarp {
 public:
  using Shared = MatmulShared<kType, kTokenTiles>;
  // From a step of the warp to its next.
  static constexpr unsigned kStride = kMatmulWarps * kStepCols;
  // Columns 16h + 4t + 0 .. 3 of a step for each half h.
  struct Input {
    uint2 halves[kTokenTiles][2];
  };

  __device__ MatmulWarp(const QuantizedMatmulParams& params, std::int64_t band_bytes, Shared& shared)
      : params_(params),
        shared_(shared),
        band_(params.matrix.data + blockIdx.x * band_bytes),
        columns_(static_cast<unsigned>(params.matrix.cols)),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {
#pragma unroll
    for (unsigned n = 0; n < kTokenTiles; ++n) {
      // In the place of a token that is not there comes the last one: a column of the sums that nobody stores.
      const unsigned token = min(n * kTileTokens + lane_ / 4, static_cast<unsigned>(params.num_tokens) - 1);
      input_at_[n] = token * columns_ + lane_ % 4 * 4;
    }
  }

  __device__ unsigned FirstColumn() const { return warp_ * kStepCols; }

  // Copies the tiles of the step, if there is one, to their stage; a group of copies in any case.
  __device__ void StartLoad(unsigned column) {
    if (column < columns_) {
      std::byte* stage = StageOf(column) + 16 * lane_;
      const std::byte* tiles = band_ + (column / kStepCols * kTileBytes + 16 * lane_);
      // Whole rounds of the warp and the lanes that are left: how often is known to the compiler.
#pragma unroll
      for (unsigned at = 0; at < kTileBytes; at += 512) {
        if (at + 16 * lane_ < kTileBytes) gpu::CopyAsync<16>(stage + at, tiles + at);
      }
      if constexpr (kScaleBytes > 0) {
        const unsigned behind = columns_ / kStepCols * kTileBytes;
        const unsigned block = column / kStepCols / kLayout.steps_a_block;
        const std::byte* scales = band_ + (behind + block * kScaleBytes + 16 * lane_);
        if (16 * lane_ < kScaleBytes) gpu::CopyAsync<16>(stage + kTileBytes, scales);
      }
    }
    gpu::CommitCopies();
  }

  __device__ Input LoadInput(unsigned column) const {
    Input input;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        input.halves[n][half] = *reinterpret_cast<const uint2*>(params_.input + (input_at_[n] + column) + 16 * half);
      }
    }
    return input;
  }

  __device__ void Multiply(unsigned column, const Input& input) {
    const std::byte* stage = StageOf(column);
    if constexpr (kType == QuantizedType::kQ4_1) AddMinima(stage, input);
#pragma unroll
    for (int m = 0; m < kBandTiles; ++m) {
      const Tile tile = TileOf(stage, m);
      std::uint32_t codes[2][Tile::kPairs];
#pragma unroll
      for (int i = 0; i < 2 * Tile::kPairs; ++i) codes[i % 2][i / 2] = tile.Codes(i % 2, i / 2);
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        float products[4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          gpu::MmaBf16(products,
                       {codes[0][2 * half], codes[1][2 * half], codes[0][2 * half + 1], codes[1][2 * half + 1]},
                       {input.halves[n][half].x, input.halves[n][half].y});
          // Products that share a scale are summed first.
          if (half + 1 < 2 / Tile::kGroups) continue;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums_[m][n][i] = fmaf(tile.Scale(i / 2, half % Tile::kGroups), products[i], sums_[m][n][i]);
            products[i] = 0.0f;
          }
        }
      }
    }
  }

  __device__ void StoreSums() {
#pragma unroll
    for (int m = 0; m < kBandTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned token = n * kTileTokens + lane_ % 4 * 2 + i % 2;
          shared_.memory.sums[warp_][token][m * kTileRows + i / 2 * 8 + lane_ / 4] = sums_[m][n][i];
        }
      }
    }
  }

 private:
  using Tile = LaneTile<kType>;
  static constexpr QuantizedTileLayout kLayout = kTileLayout<kType>;
  // Of a step.
  static constexpr unsigned kTileBytes = kBandTiles * kLayout.size;
  static constexpr unsigned kScaleBytes = kBandTiles * kLayout.block_scales;

  __device__ std::byte* StageOf(unsigned column) { return shared_.memory.stages[warp_][column / kStride % kStages]; }

  __device__ Tile TileOf(const std::byte* stage, int m) const {
    return Tile(stage + m * kLayout.size, stage + kTileBytes + m * kLayout.block_scales, lane_);
  }

  // Each minimum is multiplied by the sum of the inputs: a product with ones, of which all rows are alike.
  __device__ void AddMinima(const std::byte* stage, const Input& input) {
    constexpr std::uint32_t kOnes = 0x3f803f80;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      float inputs[4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        gpu::MmaBf16(inputs, {kOnes, kOnes, kOnes, kOnes}, {input.halves[n][half].x, input.halves[n][half].y});
      }
#pragma unroll
      for (int m = 0; m < kBandTiles; ++m) {
        const Tile tile = TileOf(stage, m);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[m][n][i] = fmaf(tile.Minimum(i / 2), inputs[i % 2], sums_[m][n][i]);
      }
    }
  }

  const QuantizedMatmulParams& params_;
  Shared& shared_;
  const std::byte* band_;
  const unsigned columns_;
  const unsigned lane_;
  const unsigned warp_;
  unsigned input_at_[kTokenTiles];  // of column 0
  float sums_[kBandTiles][kTokenTiles][4] = {};
};

// Joins the warps' sums in the order of the warps.
template <typename Sums>
__device__ void StoreOutput(const QuantizedMatmulParams& params, const Sums (&sums)[kMatmulWarps]) {
  for (int i = static_cast<int>(threadIdx.x); i < params.num_tokens * kBandRows; i += kMatmulThreads) {
    const int token = i / kBandRows;
    const int row = static_cast<int>(blockIdx.x) * kBandRows + i % kBandRows;
    if (row >= params.matrix.rows) continue;
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kMatmulWarps; ++warp) sum += sums[warp][token][i % kBandRows];
    const std::int64_t at = token * params.output_stride + row;
    if (params.output_is_float) {
      static_cast<float*>(params.output)[at] = sum;
    } else {
      static_cast<std::uint16_t*>(params.output)[at] = __bfloat16_as_ushort(__float2bfloat16_rn(sum));
    }
  }
}

// A block for each band; its warps share the columns, so that even 4096 rows give each multiprocessor 16 warps.
template <QuantizedType kType, int kTokenTiles>
__global__ void __launch_bounds__(kMatmulThreads, 2)
    QuantizedMatmulKernel(const __grid_constant__ QuantizedMatmulParams params, std::int64_t band_bytes) {
  using Warp = MatmulWarp<kType, kTokenTiles>;
  BERTH_DYNAMIC_SHARED(typename Warp::Shared, shared);
  Warp warp(params, band_bytes, shared);
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) warp.StartLoad(warp.FirstColumn() + stage * Warp::kStride);
  // Inputs of a step ahead, but with two tiles of tokens: 64 registers, with which two blocks overlap, hold no more.
  constexpr int kAhead = kTokenTiles == 1 ? 1 : 0;
  typename Warp::Input inputs[kAhead + 1];
  const auto columns = static_cast<unsigned>(params.matrix.cols);
  if (warp.FirstColumn() < columns) inputs[0] = warp.LoadInput(warp.FirstColumn());
  for (unsigned column = warp.FirstColumn(); column < columns; column += Warp::kStride) {
    const unsigned next = column + kAhead * Warp::kStride;
    inputs[kAhead] = warp.LoadInput(next < columns ? next : column);
    gpu::WaitCopies<kStages - 1>();
    __syncwarp();  // the other lanes' copies
    warp.Multiply(column, inputs[0]);
    inputs[0] = inputs[kAhead];
    __syncwarp();  // all lanes have read the stage
    warp.StartLoad(column + kStages * Warp::kStride);
  }
  gpu::WaitCopies<0>();
  __syncthreads();  // the stages' memory is used again
  warp.StoreSums();
  __syncthreads();
  StoreOutput(params, shared.memory.sums);
}

constexpr int kDequantizeWarps = 8;

// A warp for each step of a band.
template <QuantizedType kType>
__global__ void __launch_bounds__(kDequantizeWarps * 32)
    DequantizeKernel(const __grid_constant__ DequantizeParams params, std::int64_t band_bytes) {
  using Tile = LaneTile<kType>;
  constexpr QuantizedTileLayout kLayout = kTileLayout<kType>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int step = static_cast<int>(blockIdx.y) * kDequantizeWarps + static_cast<int>(threadIdx.x) / 32;
  const int cols = params.matrix.cols;
  if (step >= cols / kStepCols) return;
  const std::byte* band = params.matrix.data + blockIdx.x * band_bytes;
  const std::byte* tiles = band + static_cast<std::int64_t>(step) * kBandTiles * kLayout.size;
  const std::byte* block_scales = band + static_cast<std::int64_t>(cols / kStepCols) * kBandTiles * kLayout.size +
                                  step / kLayout.steps_a_block * kBandTiles * kLayout.block_scales;
#pragma unroll
  for (int m = 0; m < kBandTiles; ++m) {
    const Tile tile(tiles + m * kLayout.size, block_scales + m * kLayout.block_scales, lane);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kBandRows + m * kTileRows + r * 8 + lane / 4;
      if (row >= params.matrix.rows) continue;
      std::uint32_t pairs[Tile::kPairs];
#pragma unroll
      for (int i = 0; i < Tile::kPairs; ++i) {
        const float2 code = gpu::UnpackBf16(tile.Codes(r, i));
        const int group = i / 2 % Tile::kGroups;
        pairs[i] = gpu::PackBf16(tile.Value(r, group, code.x), tile.Value(r, group, code.y));
      }
      std::uint16_t* columns = params.output + row * cols + step * kStepCols + lane % 4 * 4;
      *reinterpret_cast<uint2*>(columns) = {pairs[0], pairs[1]};
      *reinterpret_cast<uint2*>(columns + 16) = {pairs[2], pairs[3]};
    }
  }
}

unsigned Bands(const QuantizedMatrix& matrix) {
  return static_cast<unsigned>((matrix.rows + kBandRows - 1) / kBandRows);
}

bool IsMadeFor(const QuantizedMatrix& matrix) {
  constexpr int kMaxCols = 65535 * kDequantizeWarps * kStepCols;  // of a grid; a band's bytes fit in 32 bits
  const int unit = kStepCols * TileLayoutOf(matrix.type).steps_a_block;
  return matrix.rows >= 1 && matrix.cols >= unit && matrix.cols <= kMaxCols && matrix.cols % unit == 0;
}

template <QuantizedType kType>
cudaError_t LaunchFor(const DequantizeParams& params, cudaStream_t stream) {
  const auto steps = static_cast<unsigned>(params.matrix.cols / kStepCols);
  const dim3 grid(Bands(params.matrix), (steps + kDequantizeWarps - 1) / kDequantizeWarps);
  return gpu::Launch(DequantizeKernel<kType>, grid, dim3(kDequantizeWarps * 32), 0, stream, params,
                     BandBytes(kType, params.matrix.cols));
}

template <QuantizedType kType, int kTokenTiles>
cudaError_t LaunchFor(const QuantizedMatmulParams& params, cudaStream_t stream) {
  return gpu::Launch(QuantizedMatmulKernel<kType, kTokenTiles>, dim3(Bands(params.matrix)), dim3(kMatmulThreads),
                     sizeof(MatmulShared<kType, kTokenTiles>), stream, params, BandBytes(kType, params.matrix.cols));
}

template <QuantizedType kType>
cudaError_t LaunchFor(const QuantizedMatmulParams& params, cudaStream_t stream) {
  return params.num_tokens <= kTileTokens ? LaunchFor<kType, 1>(params, stream) : LaunchFor<kType, 2>(params, stream);
}

template <typename Params>
cudaError_t LaunchForType(const Params& params, cudaStream_t stream) {
  switch (params.matrix.type) {
    case QuantizedType::kQ4_0:
      return LaunchFor<QuantizedType::kQ4_0>(params, stream);
    case QuantizedType::kQ4_1:
      return LaunchFor<QuantizedType::kQ4_1>(params, stream);
    case QuantizedType::kQ8_0:
      return LaunchFor<QuantizedType::kQ8_0>(params, stream);
    case QuantizedType::kQ6_K:
      return LaunchFor<QuantizedType::kQ6_K>(params, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchDequantize(const DequantizeParams& params, cudaStream_t stream) {
  if (!IsMadeFor(params.matrix)) return cudaErrorInvalidValue;
  return LaunchForType(params, stream);
}

cudaError_t LaunchQuantizedMatmul(const QuantizedMatmulParams& params, cudaStream_t stream) {
  static_assert(kQuantizedMatmulTokens == 2 * kTileTokens);
  if (!IsMadeFor(params.matrix) || params.num_tokens > kQuantizedMatmulTokens) return cudaErrorInvalidValue;
  if (params.num_tokens == 0) return cudaSuccess;
  return LaunchForType(params, stream);
}

}  // namespace berth::cuda
