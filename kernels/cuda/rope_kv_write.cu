#include "kernels/cuda/rope_kv_write.h"

#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

constexpr int kWarps = 4;  // of a block; each takes one head of one token
constexpr int kMaxHeadDim = 256;
// A lane's share of a head: couples of neighbouring elements, 32 couples apart.
constexpr int kMaxCouples = kMaxHeadDim / 2 / 32;

struct Couples {
  float2 values[kMaxCouples];
};

__device__ float2 LoadCouple(const std::uint16_t* head, int couple) {
  return gpu::UnpackBf16(reinterpret_cast<const std::uint32_t*>(head)[couple]);
}

// Elements 2c and 2c + 1 of the head after the rotation, from the head as it was.
__device__ float2 RotatedCouple(const RopeKvWriteParams& params, const std::uint16_t* head, int couple,
                                std::int64_t angles) {
  const float2 x = LoadCouple(head, couple);
  if (couple >= params.rotary_pairs) return x;
  if (params.pairs == RopePairs::kAdjacent) {
    const float cosine = params.cosines[angles + couple];
    const float sine = params.sines[angles + couple];
    return {x.x * cosine - x.y * sine, x.x * sine + x.y * cosine};
  }
  // The lower half turns with the upper: the sine's sign is the half's.
  const int half = params.rotary_pairs / 2;  // in couples
  const bool lower = couple < half;
  const float2 other = LoadCouple(head, lower ? couple + half : couple - half);
  const std::int64_t pair = angles + 2 * (lower ? couple : couple - half);
  const float sign = lower ? -1.0f : 1.0f;
  return {x.x * params.cosines[pair] + sign * (other.x * params.sines[pair]),
          x.y * params.cosines[pair + 1] + sign * (other.y * params.sines[pair + 1])};
}

__device__ void StoreBf16(std::uint16_t* head, int lane, int couples, const Couples& mine) {
#pragma unroll
  for (int i = 0; i < kMaxCouples; ++i) {
    const int couple = lane + 32 * i;
    if (couple < couples) {
      reinterpret_cast<std::uint32_t*>(head)[couple] = gpu::PackBf16(mine.values[i].x, mine.values[i].y);
    }
  }
}

__device__ signed char Code(float x, float scale) {
  return static_cast<signed char>(fminf(fmaxf(rintf(x / scale), -127.0f), 127.0f));
}

__device__ void StoreInt8(signed char* head, std::uint16_t* scale_at, int lane, int couples, const Couples& mine) {
  float highest = 0.0f;
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kMaxCouples; ++i) {
    const float larger = fmaxf(fabsf(mine.values[i].x), fabsf(mine.values[i].y));
    finite = finite && mine.values[i].x - mine.values[i].x == 0.0f && mine.values[i].y - mine.values[i].y == 0.0f;
    highest = fmaxf(highest, larger);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(gpu::kAllLanes, highest, distance));
  }
  finite = __all_sync(gpu::kAllLanes, finite ? 1 : 0) != 0;
  constexpr float kLargestHalf = 65504.0f;
  const __half half = __float2half_ru(fminf(highest / 127.0f, kLargestHalf));
  const float scale = __half2float(half);
  const bool codes = finite && scale > 0.0f;
#pragma unroll
  for (int i = 0; i < kMaxCouples; ++i) {
    const int couple = lane + 32 * i;
    if (couple >= couples) continue;
    const char2 pair = {codes ? Code(mine.values[i].x, scale) : static_cast<signed char>(0),
                        codes ? Code(mine.values[i].y, scale) : static_cast<signed char>(0)};
    reinterpret_cast<char2*>(head)[couple] = pair;
  }
  constexpr std::uint16_t kHalfNan = 0x7fff;
  if (lane == 0) *scale_at = finite ? __half_as_ushort(half) : kHalfNan;
}

// A key or value head of one token into its slot.
__device__ void StoreInCache(const RopeKvWriteParams& params, int token, int kv_head, bool is_key, int lane,
                             const Couples& mine) {
  const KvCache& cache = params.cache;
  const std::int64_t slot = params.slots[token];
  if (slot < 0) return;  // the whole warp
  const std::int64_t block = slot / cache.block_tokens;
  const std::int64_t place = kv_head * static_cast<std::int64_t>(cache.block_tokens) + slot % cache.block_tokens;
  const std::int64_t at = block * cache.block_stride + place * cache.head_dim;
  void* elements = is_key ? cache.keys : cache.values;
  const int couples = cache.head_dim / 2;
  if (cache.element == KvElement::kBf16) {
    StoreBf16(static_cast<std::uint16_t*>(elements) + at, lane, couples, mine);
  } else {
    std::uint16_t* scales = is_key ? cache.key_scales : cache.value_scales;
    StoreInt8(static_cast<signed char*>(elements) + at, scales + block * cache.scale_block_stride + place, lane,
              couples, mine);
  }
}

__global__ void __launch_bounds__(kWarps * 32) RopeKvWriteKernel(const __grid_constant__ RopeKvWriteParams params) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int token = static_cast<int>(blockIdx.x);
  const int kv_heads = params.cache.num_kv_heads;
  const int heads = params.num_q_heads + 2 * kv_heads;
  const int head = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (head >= heads) return;  // a whole warp, and there is no barrier of the block
  const bool is_value = head >= params.num_q_heads + kv_heads;
  const int couples = params.cache.head_dim / 2;
  std::uint16_t* data = params.qkv + (static_cast<std::int64_t>(token) * heads + head) * params.cache.head_dim;
  const std::int64_t angles = static_cast<std::int64_t>(params.positions[token]) * params.rotary_pairs;
  Couples mine;
#pragma unroll
  for (int i = 0; i < kMaxCouples; ++i) {
    const int couple = lane + 32 * i;
    mine.values[i] = {0.0f, 0.0f};
    if (couple >= couples) continue;
    mine.values[i] = is_value ? LoadCouple(data, couple) : RotatedCouple(params, data, couple, angles);
  }
  if (head < params.num_q_heads) {
    __syncwarp();  // the other half of a pair has been read by its lane
    StoreBf16(data, lane, couples, mine);
  } else {
    const int kv_head = (head - params.num_q_heads) % kv_heads;
    StoreInCache(params, token, kv_head, !is_value, lane, mine);
  }
}

}  // namespace

cudaError_t LaunchRopeKvWrite(const RopeKvWriteParams& params, cudaStream_t stream) {
  const KvCache& cache = params.cache;
  if (cache.head_dim < 2 || cache.head_dim % 2 != 0 || cache.head_dim > kMaxHeadDim || cache.num_kv_heads < 1 ||
      params.num_q_heads < 0 || params.rotary_pairs % 2 != 0 || params.rotary_pairs > cache.head_dim / 2) {
    return cudaErrorInvalidValue;
  }
  if (params.num_tokens == 0) return cudaSuccess;
  const int heads = params.num_q_heads + 2 * cache.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(params.num_tokens), static_cast<unsigned>((heads + kWarps - 1) / kWarps));
  return gpu::Launch(RopeKvWriteKernel, grid, dim3(kWarps * 32), 0, stream, params);
}

}  // namespace berth::cuda
