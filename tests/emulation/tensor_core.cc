#include "emulation/tensor_core.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <bit>

#include "emulation/block.h"
#include "emulation/fault.h"
#include "emulation/scheduler.h"
#include "emulation/settings.h"

namespace berth::emulation {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;

template <typename Sum>
struct MmaArguments {
  Sum* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

// An element type: how many are in a register, and the one at `index` as what is summed.
struct Bf16 {
  using Sum = float;
  static constexpr int kPerRegister = 2;
  static float Get(std::uint32_t value, int index) {
    return std::bit_cast<float>(index == 0 ? value << 16 : value & 0xffff0000u);
  }
};

struct F16 {
  using Sum = float;
  static constexpr int kPerRegister = 2;
  static float Get(std::uint32_t value, int index) {
    const auto bits = static_cast<std::uint16_t>(value >> (16 * index));
    return __half2float(std::bit_cast<__half>(bits));
  }
};

struct S8 {
  using Sum = std::int32_t;
  static constexpr int kPerRegister = 4;
  static std::int32_t Get(std::uint32_t value, int index) { return static_cast<std::int8_t>(value >> (8 * index)); }
};

// "Matrix Fragments for mma.m16n8k16 with floating point type" and "... mma.m16n8k32": a lane's group is lane / 4, its
// place in the group lane % 4. Register r of A holds row group + 8 · (r % 2), and of the k columns the
// kPerRegister from kPerRegister · (place + 4 · (r / 2)) on; register r of B the same columns as rows, with r for
// r / 2, in column group. D holds in d[2i], d[2i + 1] row group + 8i, columns 2 · place and 2 · place + 1.
template <typename Element>
void DoMma(void* const* arguments, std::uint32_t, CallSite) {
  using Sum = typename Element::Sum;
  constexpr int kPer = Element::kPerRegister;
  constexpr int kDepth = 8 * kPer;
  ++counters().matrix_products;
  std::array<std::array<Sum, kDepth>, kRows> a;
  std::array<std::array<Sum, kDepth>, kColumns> b;
  for (int lane = 0; lane < static_cast<int>(kWarpThreads); ++lane) {
    const auto& own = *static_cast<const MmaArguments<Sum>*>(arguments[lane]);
    const int group = lane / 4;
    const int place = lane % 4;
    for (int i = 0; i < kPer; ++i) {
      for (int r = 0; r < 4; ++r) a[group + 8 * (r % 2)][kPer * (place + 4 * (r / 2)) + i] = Element::Get(own.a[r], i);
      for (int r = 0; r < 2; ++r) b[group][kPer * (place + 4 * r) + i] = Element::Get(own.b[r], i);
    }
  }
  for (int lane = 0; lane < static_cast<int>(kWarpThreads); ++lane) {
    const auto& own = *static_cast<const MmaArguments<Sum>*>(arguments[lane]);
    for (int i = 0; i < 4; ++i) {
      const auto& row = a[lane / 4 + 8 * (i / 2)];
      const auto& column = b[2 * (lane % 4) + i % 2];
      Sum sum = own.d[i];
      for (int k = 0; k < kDepth; ++k) sum += row[k] * column[k];
      own.d[i] = sum;
    }
  }
}

template <typename Element>
void Mma(typename Element::Sum* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site) {
  MmaArguments<typename Element::Sum> arguments{d, a, b};
  WholeWarp("mma.sync", &DoMma<Element>, &arguments, site);
}

struct LoadArguments {
  unsigned count;
  bool transposed;
  const void* row;
  const void* (*elements)[2];
};

constexpr unsigned kMatrixRows = 8;
constexpr std::size_t kRowBytes = 16;
constexpr std::size_t kElementBytes = 2;

// "ldmatrix": lanes 8m to 8m + 7 bring the addresses of the rows of matrix m.
void DoLoadMatrix(void* const* arguments, std::uint32_t, CallSite site) {
  const auto argument = [&](unsigned lane) -> const LoadArguments& {
    return *static_cast<const LoadArguments*>(arguments[lane]);
  };
  const auto row = [&](unsigned matrix, unsigned index) {
    return static_cast<const std::byte*>(argument(matrix * kMatrixRows + index).row);
  };
  for (unsigned matrix = 0; matrix < argument(0).count; ++matrix) {
    std::array<unsigned, 8> rows_in_bank{};  // a row takes four of 32 banks
    for (unsigned index = 0; index < kMatrixRows; ++index) {
      const auto address = reinterpret_cast<std::uintptr_t>(row(matrix, index));
      if (address % kRowBytes != 0 || !InShared(row(matrix, index), kRowBytes)) {
        Fail(site, "ldmatrix: lane %u brings row address %#zx: %s", matrix * kMatrixRows + index,
             static_cast<std::size_t>(address),
             address % kRowBytes != 0 ? "no multiple of 16" : "not in the block's shared memory");
      }
      ++rows_in_bank[address / kRowBytes % rows_in_bank.size()];
    }
    ++counters().matrix_loads;
    counters().bank_conflicts += *std::max_element(rows_in_bank.begin(), rows_in_bank.end()) - 1;
    for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
      const LoadArguments& own = argument(lane);
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned pair = lane % 4 * 2 + i;
        own.elements[matrix][i] = own.transposed ? row(matrix, pair) + lane / 4 * kElementBytes
                                                 : row(matrix, lane / 4) + pair * kElementBytes;
      }
    }
  }
}

}  // namespace

void MmaBf16(float* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site) { Mma<Bf16>(d, a, b, site); }

void MmaF16(float* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site) { Mma<F16>(d, a, b, site); }

void MmaS8(std::int32_t* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site) { Mma<S8>(d, a, b, site); }

void MatrixElements(unsigned count, bool transposed, const void* row, const void* (*elements)[2], CallSite site) {
  LoadArguments arguments{count, transposed, row, elements};
  WholeWarp("ldmatrix", &DoLoadMatrix, &arguments, site);
}

}  // namespace berth::emulation
