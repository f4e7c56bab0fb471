#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runner/cuda/cuda_backend.h"
#include "runner/cuda/cuda_call.h"

namespace berth {
namespace {

// What the kernels were compiled for, such as "80 89 90a": code for 8.0 runs on 8.x from 8.0 on, code for 9.0a on 9.0
// alone ("CUDA C++ Programming Guide", "Binary Compatibility" and "Architecture-Specific Features").
constexpr std::string_view kArchitectures = BERTH_CUDA_ARCHITECTURES;

bool RunsOn(std::string_view architecture, const CudaDevice& device) {
  const bool exact = architecture.back() == 'a';
  if (exact) architecture.remove_suffix(1);
  int built = 0;
  for (const char digit : architecture) built = built * 10 + (digit - '0');
  const bool minor_fits = exact ? device.compute_minor == built % 10 : device.compute_minor >= built % 10;
  return device.compute_major == built / 10 && minor_fits;
}

std::string WhyUnusable(const CudaDevice& device) {
  for (std::string_view left = kArchitectures; !left.empty();) {
    const std::size_t end = std::min(left.find(' '), left.size());
    if (RunsOn(left.substr(0, end), device)) return "";
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return absl::StrCat("its compute capability is ", device.compute_major, ".", device.compute_minor,
                      ", and this build has kernels for ", std::string(kArchitectures), " (BERTH_CUDA_ARCHITECTURES)");
}

}  // namespace

bool HasCudaBackend() { return true; }

// A driver may be there and have nothing to drive.
absl::StatusOr<int> CountCudaDevices() {
  int driver = 0;
  BERTH_CUDA_CALL(cudaDriverGetVersion, &driver);
  if (driver == 0) return 0;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess && error != cudaErrorNoDevice) return CudaError("cudaGetDeviceCount", error);
  if (error == cudaErrorNoDevice) static_cast<void>(cudaGetLastError());
  return error == cudaErrorNoDevice ? 0 : count;
}

absl::StatusOr<CudaDevice> DescribeCudaDevice(int index) {
  const absl::StatusOr<int> count = CountCudaDevices();
  if (!count.ok()) return count.status();
  if (index >= *count) {
    return absl::NotFoundError(
        absl::StrCat("no CUDA device ", index, ": there ", *count == 1 ? "is " : "are ", *count));
  }
  cudaDeviceProp properties{};
  BERTH_CUDA_CALL(cudaGetDeviceProperties, &properties, index);
  CudaDevice device;
  device.index = index;
  device.name = properties.name;
  device.compute_major = properties.major;
  device.compute_minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.unusable = WhyUnusable(device);
  BERTH_CUDA_CALL(cudaSetDevice, index);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  BERTH_CUDA_CALL(cudaMemGetInfo, &free_bytes, &total_bytes);
  device.free_bytes = static_cast<std::int64_t>(free_bytes);
  device.total_bytes = static_cast<std::int64_t>(total_bytes);
  return device;
}

}  // namespace berth
