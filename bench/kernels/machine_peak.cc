#include "machine_peak.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace berth::bench {
namespace {

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Best of several short runs: anything else on the machine only makes a run slower.
template <typename Work>
double BestRate(double amount, const Work& work) {
  double best = 0.0;
  for (int i = 0; i < 8; ++i) {
    const double start = ThreadSeconds();
    work();
    best = std::max(best, amount / (ThreadSeconds() - start));
  }
  return best / 1e9;
}

#if defined(__x86_64__)

constexpr int kChains = 12;  // independent accumulators: more than latency times issue width
constexpr int kSteps = 4'000'000;

#define BERTH_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define BERTH_AVX2 __attribute__((target("avx2,fma")))

// The empty asm makes the compiler believe that the register was read and changed: it neither folds nor drops the loop.
BERTH_AVX512 void Avx512Integer() {
  __m512i acc[kChains] = {};
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(2);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbusd_epi32(acc[c], a, b);
      asm volatile("" : "+v"(acc[c]));
    }
  }
}

BERTH_AVX512 void Avx512Float() {
  __m512 acc[kChains] = {};
  const __m512 a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(0.5f);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_fmadd_ps(a, b, acc[c]);
      asm volatile("" : "+v"(acc[c]));
    }
  }
}

BERTH_AVX2 void Avx2Integer() {
  __m256i acc[kChains] = {};
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+x"(a));
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      asm volatile("" : "+x"(acc[c]));
    }
  }
}

BERTH_AVX2 void Avx2Float() {
  __m256 acc[kChains] = {};
  const __m256 a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(0.5f);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm256_fmadd_ps(a, b, acc[c]);
      asm volatile("" : "+x"(acc[c]));
    }
  }
}

BERTH_AVX2 void ReadAll(const std::vector<std::uint64_t>& memory) {
  __m256i acc[8] = {};
  const auto* p = reinterpret_cast<const __m256i*>(memory.data());
  for (std::size_t i = 0; i + 8 <= memory.size() / 4; i += 8) {
    for (std::size_t c = 0; c < 8; ++c) acc[c] = _mm256_xor_si256(acc[c], _mm256_loadu_si256(p + i + c));
  }
  for (__m256i& value : acc) asm volatile("" : "+x"(value));
}

#else

void ReadAll(const std::vector<std::uint64_t>& memory) {
  std::uint64_t acc = 0;
  for (const std::uint64_t value : memory) acc ^= value;
  asm volatile("" : "+r"(acc));
}

#endif

}  // namespace

MachinePeak MeasurePeak(cpu::CpuLevel level, std::size_t read_bytes) {
  MachinePeak peak;
#if defined(__x86_64__)
  const double instructions = double{kSteps} * kChains;
  if (level == cpu::CpuLevel::kAvx512Vnni) {
    peak.integer_gops = BestRate(instructions * 64 * 2, Avx512Integer);
    peak.float_gflops = BestRate(instructions * 16 * 2, Avx512Float);
  } else if (level == cpu::CpuLevel::kAvx2) {
    peak.integer_gops = BestRate(instructions * 32 * 2, Avx2Integer);
    peak.float_gflops = BestRate(instructions * 8 * 2, Avx2Float);
  }
  if (cpu::DetectCpuLevel() < cpu::CpuLevel::kAvx2) return peak;
#endif
  const std::vector<std::uint64_t> memory(read_bytes / sizeof(std::uint64_t), 1);
  peak.read_gb_per_s = BestRate(static_cast<double>(read_bytes), [&] { ReadAll(memory); });
  return peak;
}

}  // namespace berth::bench
