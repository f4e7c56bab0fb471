#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runner/cuda/cuda_backend.h"
#include "runner/cuda/cuda_call.h"

namespace berth {
namespace {

// BERTH_CUDA_ARCHITECTURE is what the kernels were compiled for: "90a" runs on 9.0 alone, "80" on 8.x from 8.0 on.
struct Architecture {
  int major = 0;
  int minor = 0;
  bool exact = false;
};

constexpr Architecture BuiltFor() {
  constexpr std::string_view kName = BERTH_CUDA_ARCHITECTURE;
  constexpr bool kExact = kName.back() == 'a';
  constexpr std::string_view kDigits = kName.substr(0, kName.size() - (kExact ? 1 : 0));
  Architecture built{0, kDigits.back() - '0', kExact};
  for (const char digit : kDigits.substr(0, kDigits.size() - 1)) built.major = built.major * 10 + (digit - '0');
  return built;
}

std::string WhyUnusable(const CudaDevice& device) {
  constexpr Architecture kBuilt = BuiltFor();
  const bool fits = device.compute_major == kBuilt.major &&
                    (kBuilt.exact ? device.compute_minor == kBuilt.minor : device.compute_minor >= kBuilt.minor);
  if (fits) return "";
  return absl::StrCat("its compute capability is ", device.compute_major, ".", device.compute_minor,
                      ", and this build's kernels are for ", kBuilt.major, ".", kBuilt.minor,
                      kBuilt.exact ? "" : " and up");
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
