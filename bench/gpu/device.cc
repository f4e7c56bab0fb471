#include "device.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <random>

namespace berth::bench {
namespace {

constexpr std::size_t kPatternElements = std::size_t{256} << 10;

std::string Gibibytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace

void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  throw CaseFailure(std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

DeviceFacts ReadDeviceFacts() {
  int count = 0;
  BERTH_BENCH_CUDA(cudaGetDeviceCount, &count);
  if (count == 0) throw CaseFailure("cudaGetDeviceCount: no device");
  cudaDeviceProp properties;
  BERTH_BENCH_CUDA(cudaGetDeviceProperties, &properties, 0);
  DeviceFacts facts{.name = properties.name,
                    .compute_major = properties.major,
                    .compute_minor = properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                    .l2_bytes = properties.l2CacheSize};
  BERTH_BENCH_CUDA(cudaDriverGetVersion, &facts.driver_version);
  BERTH_BENCH_CUDA(cudaRuntimeGetVersion, &facts.runtime_version);
  return facts;
}

Arena::~Arena() {
  for (void* allocation : allocations_) static_cast<void>(cudaFree(allocation));
}

std::byte* Arena::Allocate(std::int64_t bytes) {
  if (bytes > limit_bytes_ - used_bytes_) {
    throw CaseSkipped("needs more than the " + Gibibytes(limit_bytes_) + " of --memory-gib");
  }
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw CaseSkipped("no " + Gibibytes(bytes) + " of device memory are free");
  }
  Check(error, "cudaMalloc");
  allocations_.push_back(memory);
  used_bytes_ += bytes;
  return static_cast<std::byte*>(memory);
}

std::byte* Arena::Fill(std::int64_t bytes, const void* pattern, std::size_t pattern_bytes) {
  std::byte* memory = Allocate(bytes);
  const auto total = static_cast<std::size_t>(bytes);
  std::size_t filled = std::min(pattern_bytes, total);
  BERTH_BENCH_CUDA(cudaMemcpy, memory, pattern, filled, cudaMemcpyHostToDevice);
  while (filled < total) {
    const std::size_t more = std::min(filled, total - filled);
    BERTH_BENCH_CUDA(cudaMemcpy, memory + filled, memory, more, cudaMemcpyDeviceToDevice);
    filled += more;
  }
  return memory;
}

std::uint16_t* Arena::RandomBf16(std::int64_t count, float deviation) {
  std::vector<std::uint16_t> pattern(std::min(kPatternElements, static_cast<std::size_t>(count)));
  std::minstd_rand generator(1);
  std::normal_distribution<float> distribution(0.0f, deviation);
  for (std::uint16_t& value : pattern) {
    value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(distribution(generator)) >> 16);
  }
  return Fill(count, pattern);
}

std::byte* Arena::RandomBytes(std::int64_t bytes) {
  std::vector<std::uint8_t> pattern(std::min(2 * kPatternElements, static_cast<std::size_t>(bytes)));
  std::minstd_rand generator(2);
  for (std::uint8_t& value : pattern) value = static_cast<std::uint8_t>(generator() >> 8);
  return Fill(bytes, pattern.data(), pattern.size());
}

}  // namespace berth::bench
