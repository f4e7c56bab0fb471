// Device memory for tests of kernels, on the emulation and on a GPU alike.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

namespace berth::emulation {

// True, with the reason why the test skips, where there is no device to run on.
inline bool NoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error != cudaSuccess || count == 0;
}

#define BERTH_REQUIRE_DEVICE() \
  if (berth::emulation::NoDevice()) GTEST_SKIP() << "no CUDA device"

// Owned, on the device. The emulation fills it with NaN, so an element that nobody writes is seen.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)), cudaSuccess);
  }
  // There when the constructor returns, for every stream: the copy alone is not.
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { (void)cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  // After all the work that was enqueued.
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace berth::emulation
