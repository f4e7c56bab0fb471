// The one header that kernels include. What CUDA C++ has no function for is wrapped here, each wrapper with the section
// of NVIDIA's "PTX ISA" that defines it. Under nvcc a wrapper is the instruction; under a host compiler it is the
// emulation in tests/emulation, which runs the same sources on a CPU and checks what the instruction demands.
// tests/emulation/conformance_test.cc holds both to the same results.
//
// Kernels use these and CUDA's own functions; no PTX, no __CUDA_ARCH__, no <<<>>> and no __shared__ of their own
// (docs/kernels.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// NOLINTBEGIN(bugprone-macro-parentheses): a type and a name cannot have them.
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Static shared memory of the block: BERTH_SHARED(float[32], sums);
#define BERTH_SHARED(type, name) __shared__ std::type_identity_t<type> name
// The launch's dynamic shared memory as one object, at a multiple of 128 bytes.
#define BERTH_DYNAMIC_SHARED(type, name)                                        \
  extern __shared__ __align__(128) unsigned char berth_dynamic_shared_memory[]; \
  auto& name = *reinterpret_cast<std::type_identity_t<type>*>(berth_dynamic_shared_memory)
#else
#include "emulation/device.h"

#define BERTH_SHARED(type, name)                                                      \
  static char name##_key;                                                             \
  auto& name = *static_cast<std::type_identity_t<type>*>(                             \
      berth::emulation::StaticShared(&name##_key, sizeof(std::type_identity_t<type>), \
                                     alignof(std::type_identity_t<type>), berth::emulation::CallSite::Here()))
#define BERTH_DYNAMIC_SHARED(type, name)                  \
  auto& name = *static_cast<std::type_identity_t<type>*>( \
      berth::emulation::DynamicShared(sizeof(std::type_identity_t<type>), berth::emulation::CallSite::Here()))
#endif
// NOLINTEND(bugprone-macro-parentheses)

namespace berth::gpu {

inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
// What a block gets without asking: Launch asks for more where it is needed.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
// What it may ask for on all architectures: the limit of compute capability 8.9.
inline constexpr std::size_t kPortableSharedBytes = 99 * 1024;

#ifdef __CUDACC__
// The emulation's last argument: nothing here.
struct CallSite {
  __device__ static constexpr CallSite Here() { return {}; }
};

namespace internal {
// The address in the shared window that the instructions below take ("State Spaces, Types, and Variables").
__device__ __forceinline__ std::uint32_t SharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
}  // namespace internal
#else
using emulation::CallSite;
#endif

// The thread's place in its warp ("Special Registers: %laneid"). Read anew by every call: what is computed from it
// takes no register between the calls, where threadIdx.x % 32 would be kept.
__device__ __forceinline__ int LaneId() {
#ifdef __CUDACC__
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return static_cast<int>(lane % kWarpThreads);  // a range that the compiler sees
#else
  return static_cast<int>(emulation::LaneId());
#endif
}

// ---- Barriers of some of a block's warps. "Parallel Synchronization and Communication Instructions: bar, barrier".

// Waits until `threads` threads (whole warps) have come to barrier 1 to 15; orders their memory accesses.
__device__ __forceinline__ void BarrierSync(unsigned barrier, unsigned threads,
                                            [[maybe_unused]] CallSite site = CallSite::Here()) {
#ifdef __CUDACC__
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#else
  emulation::BarrierSync(barrier, threads, site);
#endif
}

// Counts as one who came, without waiting: the producer's side.
__device__ __forceinline__ void BarrierArrive(unsigned barrier, unsigned threads,
                                              [[maybe_unused]] CallSite site = CallSite::Here()) {
#ifdef __CUDACC__
  asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#else
  emulation::BarrierArrive(barrier, threads, site);
#endif
}

// ---- Copies from global to shared memory that run beside the thread. "Data Movement and Conversion Instructions:
// cp.async, cp.async.commit_group, cp.async.wait_group".

// kBytes from source to destination, both multiples of kBytes; where not valid, zeros, and nothing is read. The data
// are there for the calling thread after WaitCopies, for others after a barrier that follows. 16 bytes bypass L1.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* destination, const void* source, bool valid = true,
                                          [[maybe_unused]] CallSite site = CallSite::Here()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#ifdef __CUDACC__
  const std::uint32_t to = internal::SharedAddress(destination);
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(source), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
#else
  emulation::CopyAsync<kBytes>(destination, source, valid, site);
#endif
}

// The thread's copies since the last call are one group.
__device__ __forceinline__ void CommitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::CommitCopies();
#endif
}

// Waits until all the thread's groups but the newest kPending are there.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  emulation::WaitCopies(kPending);
#endif
}

// ---- Tensor cores. "Warp-level Matrix Instructions: ldmatrix, mma"; all 32 lanes, none of them orders memory
// accesses.

// kCount 8 × 8 matrices of 16-bit elements from shared memory. Lane 8m + r brings the address of row r of matrix m, a
// multiple of 16; of matrix m lane l gets in registers[m] row l / 4, elements 2 · (l % 4) and the next.
template <int kCount>
__device__ __forceinline__ void LoadMatrix(std::uint32_t (&registers)[kCount], const void* row,
                                           [[maybe_unused]] CallSite site = CallSite::Here()) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
#ifdef __CUDACC__
  const std::uint32_t from = internal::SharedAddress(row);
  if constexpr (kCount == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(registers[0]) : "r"(from) : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(registers[0]), "=r"(registers[1])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(from)
                 : "memory");
  }
#else
  emulation::LoadMatrix<kCount, false>(registers, row, site);
#endif
}

// As LoadMatrix, of the transposed matrices: lane l gets column l / 4, rows 2 · (l % 4) and the next.
template <int kCount>
__device__ __forceinline__ void LoadMatrixTransposed(std::uint32_t (&registers)[kCount], const void* row,
                                                     [[maybe_unused]] CallSite site = CallSite::Here()) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
#ifdef __CUDACC__
  const std::uint32_t from = internal::SharedAddress(row);
  if constexpr (kCount == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(registers[0])
                 : "r"(from)
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(registers[0]), "=r"(registers[1])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(from)
                 : "memory");
  }
#else
  emulation::LoadMatrix<kCount, true>(registers, row, site);
#endif
}

// d += a · b for a 16 × 16 and a 16 × 8 matrix of bfloat16, summed in float32. Lane l, with g = l / 4 and t = l % 4:
//   a[0], a[2]: row g, columns 2t and 2t + 8 and the next; a[1], a[3]: row g + 8
//   b[0], b[1]: column g, rows 2t and 2t + 8 and the next
//   d[0], d[1]: row g, columns 2t and 2t + 1;              d[2], d[3]: row g + 8
__device__ __forceinline__ void MmaBf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                        [[maybe_unused]] CallSite site = CallSite::Here()) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulation::MmaBf16(d, a, b, site);
#endif
}

// The same of float16.
__device__ __forceinline__ void MmaF16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                       [[maybe_unused]] CallSite site = CallSite::Here()) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulation::MmaF16(d, a, b, site);
#endif
}

// d += a · b for a 16 × 32 and a 32 × 8 matrix of signed bytes, summed in 32 bits. Places as above with 4t for 2t, 16
// for 8 in columns of a and rows of b, and four neighbours in a register.
__device__ __forceinline__ void MmaS8(std::int32_t (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                      [[maybe_unused]] CallSite site = CallSite::Here()) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulation::MmaS8(d, a, b, site);
#endif
}

// ---- Arithmetic.

// 2^x within 2 units in the last place; subnormal results are zero ("Floating Point Instructions: ex2").
__device__ __forceinline__ float Exp2(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emulation::Exp2(x);
#endif
}

// (value & mask) | bits by one instruction, which a compiler makes two of where mask and bits are constants ("Logic and
// Shift Instructions: lop3").
__device__ __forceinline__ std::uint32_t MaskOr(std::uint32_t value, std::uint32_t mask, std::uint32_t bits) {
#ifdef __CUDACC__
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(value), "r"(mask), "r"(bits));
  return result;
#else
  return (value & mask) | bits;
#endif
}

// Two values rounded to bfloat16 in one register, `low` in its lower half.
__device__ __forceinline__ std::uint32_t PackBf16(float low, float high) {
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}

// The two bfloat16 of a register.
__device__ __forceinline__ float2 UnpackBf16(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// ---- The host's side.

// Enqueues kernel(arguments...) on the stream. The error is what the launch itself ran into (a shape beyond the
// device's limits, a stream that is no more); what the kernel does is seen at the next synchronisation.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                   cudaStream_t stream, Arguments&&... arguments) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (dynamic_shared_bytes > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(dynamic_shared_bytes));
    if (error != cudaSuccess) return error;
  }
#ifdef __CUDACC__
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
#else
  return emulation::LaunchKernel(kernel, function, grid, block, dynamic_shared_bytes, stream,
                                 std::forward<Arguments>(arguments)...);
#endif
}

}  // namespace berth::gpu
