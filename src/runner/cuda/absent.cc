// A build without CUDA: there is no device that it could use.
#include "absl/status/status.h"
#include "runner/cuda/cuda_backend.h"

namespace berth {
namespace {

absl::Status Absent() { return absl::UnimplementedError("this berth was built without CUDA"); }

}  // namespace

bool HasCudaBackend() { return false; }

absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices() { return std::vector<CudaDevice>(); }

absl::StatusOr<CudaMemoryPlan> PlanCudaMemory(const Model&, const CudaBackendOptions&) { return Absent(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const Model&, const CudaBackendOptions&) { return Absent(); }

}  // namespace berth
