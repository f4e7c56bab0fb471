// Device memory that a kernel writes, between two stretches that it must not.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "emulation/device_array.h"

namespace berth::cuda {

template <typename T>
class GuardedArray {
 public:
  // Each byte 0xff until it is written: NaN in every float format, -1 as a number.
  explicit GuardedArray(std::size_t size) : size_(size), device_(Filled(nullptr, size)) {}
  explicit GuardedArray(const std::vector<T>& values)
      : size_(values.size()), device_(Filled(values.data(), values.size())) {}

  T* data() const { return reinterpret_cast<T*>(device_.data() + kGuardBytes); }

  // After all the work that was enqueued. Fails the test if a guard has changed.
  std::vector<T> Read() const {
    const std::vector<std::byte> bytes = device_.Read();
    const auto intact = [](std::byte byte) { return byte == kGuard; };
    const auto inside = bytes.begin() + kGuardBytes;
    EXPECT_TRUE(std::all_of(bytes.begin(), inside, intact)) << "written before the first element";
    const auto behind = bytes.end() - kGuardBytes;
    const auto first = std::find_if_not(behind, bytes.end(), intact);
    EXPECT_TRUE(first == bytes.end()) << "written behind the last element, " << first - behind << " bytes";
    std::vector<T> values(size_);
    if (size_ > 0) std::memcpy(values.data(), &*inside, size_ * sizeof(T));
    return values;
  }

 private:
  static constexpr std::ptrdiff_t kGuardBytes = 256;  // keeps every alignment
  static constexpr std::byte kGuard{0xa5};

  static std::vector<std::byte> Filled(const T* values, std::size_t size) {
    std::vector<std::byte> bytes(size * sizeof(T) + 2 * kGuardBytes, std::byte{0xff});
    std::fill_n(bytes.begin(), kGuardBytes, kGuard);
    std::fill_n(bytes.end() - kGuardBytes, kGuardBytes, kGuard);
    if (values != nullptr && size > 0) std::memcpy(bytes.data() + kGuardBytes, values, size * sizeof(T));
    return bytes;
  }

  std::size_t size_;
  emulation::DeviceArray<std::byte> device_;
};

}  // namespace berth::cuda
