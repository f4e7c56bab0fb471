#include "runner/cuda/cuda_devices.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runner/cuda/cuda_call.h"

namespace berth {
namespace {

// What the kernels were compiled for, "80,89,90a": 90a runs on 9.0 alone, 80 on 8.0 and later 8.x.
constexpr const char* kArchitectures = BERTH_CUDA_ARCHITECTURES;

bool RunsOn(const std::string& architecture, int major, int minor) {
  const bool exact = architecture.back() == 'a';
  const int number = std::atoi(architecture.c_str());
  return major == number / 10 && (exact ? minor == number % 10 : minor >= number % 10);
}

std::string WhyUnusable(int major, int minor) {
  for (const absl::string_view architecture : absl::StrSplit(kArchitectures, ',')) {
    if (RunsOn(std::string(architecture), major, minor)) return "";
  }
  return absl::StrCat("its compute capability is ", major, ".", minor, ", and this build's kernels are for ",
                      kArchitectures);
}

absl::StatusOr<CudaDevice> Describe(int index) {
  cudaDeviceProp properties{};
  BERTH_CUDA_CALL(cudaGetDeviceProperties, &properties, index);
  CudaDevice device;
  device.index = index;
  device.name = properties.name;
  device.compute_major = properties.major;
  device.compute_minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.unusable = WhyUnusable(device.compute_major, device.compute_minor);
  BERTH_CUDA_CALL(cudaSetDevice, index);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  BERTH_CUDA_CALL(cudaMemGetInfo, &free_bytes, &total_bytes);
  device.free_bytes = static_cast<std::int64_t>(free_bytes);
  device.total_bytes = static_cast<std::int64_t>(total_bytes);
  return device;
}

// None where there is no driver, or a driver that has nothing to drive.
absl::StatusOr<int> CountDevices() {
  int driver = 0;
  BERTH_CUDA_CALL(cudaDriverGetVersion, &driver);
  if (driver == 0) return 0;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess && error != cudaErrorNoDevice) return CudaError("cudaGetDeviceCount", error);
  if (error == cudaErrorNoDevice) static_cast<void>(cudaGetLastError());
  return error == cudaErrorNoDevice ? 0 : count;
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices() {
  const absl::StatusOr<int> count = CountDevices();
  if (!count.ok()) return count.status();
  std::vector<CudaDevice> devices;
  for (int index = 0; index < *count; ++index) {
    absl::StatusOr<CudaDevice> device = Describe(index);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return devices;
}

absl::StatusOr<CudaDevice> FindCudaDevice(int index) {
  const absl::StatusOr<int> count = CountDevices();
  if (!count.ok()) return count.status();
  if (index >= *count) {
    return absl::NotFoundError(
        absl::StrCat("no CUDA device ", index, ": there ", *count == 1 ? "is " : "are ", *count));
  }
  absl::StatusOr<CudaDevice> device = Describe(index);
  if (device.ok() && !device->unusable.empty()) {
    return absl::NotFoundError(absl::StrCat("CUDA device ", index, " (", device->name, "): ", device->unusable));
  }
  return device;
}

}  // namespace berth
