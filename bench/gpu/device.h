// CUDA for the benchmarks: errors as exceptions that a case's row tells of, memory that a case has for itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace berth::bench {

// The case cannot be measured: its row says why, and the program fails.
struct CaseFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The case is not for this machine: its row says why.
struct CaseSkipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws CaseFailure with the call's name and the error.
void Check(cudaError_t error, const char* call);
#define BERTH_BENCH_CUDA(function, ...) ::berth::bench::Check(function(__VA_ARGS__), #function)

struct DeviceFacts {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  int driver_version = 0;  // as cudaDriverGetVersion
  int runtime_version = 0;
};
// Of device 0. Throws CaseFailure where there is none.
DeviceFacts ReadDeviceFacts();

// Device memory of one case, freed with it.
class Arena {
 public:
  // Asking for more than `limit_bytes` in all, or than there is, throws CaseSkipped.
  explicit Arena(std::int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // At a multiple of 256 bytes.
  std::byte* Allocate(std::int64_t bytes);
  // Filled with copies of the pattern.
  std::byte* Fill(std::int64_t bytes, const void* pattern, std::size_t pattern_bytes);

  template <typename T>
  T* Allocate(std::int64_t count) {
    return reinterpret_cast<T*>(Allocate(count * std::int64_t{sizeof(T)}));
  }
  template <typename T>
  T* Fill(std::int64_t count, const std::vector<T>& pattern) {
    return reinterpret_cast<T*>(Fill(count * std::int64_t{sizeof(T)}, pattern.data(), pattern.size() * sizeof(T)));
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    return Fill(static_cast<std::int64_t>(values.size()), values);
  }

  // Normally distributed bfloat16, the same values every half a MiB: what a multiplier draws depends on its operands,
  // so they are no zeros.
  std::uint16_t* RandomBf16(std::int64_t count, float deviation = 1.0f);
  // Any bytes.
  std::byte* RandomBytes(std::int64_t bytes);

 private:
  std::int64_t limit_bytes_;
  std::int64_t used_bytes_ = 0;
  std::vector<void*> allocations_;
};

}  // namespace berth::bench
