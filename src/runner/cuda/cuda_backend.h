// The transformer on a CUDA device: bfloat16 activations, cuBLASLt and the kernels of kernels/cuda, CUDA graphs for
// steps that only decode, one step submitted ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/backend.h"
#include "model/model.h"

namespace berth {

// Whether this build has the backend. Where it has not, there are no devices.
bool HasCudaBackend();

struct CudaDevice {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
  // Why this build cannot run on it; empty: it can.
  std::string unusable;
};
// Empty where there is no device. Errors: there is a driver, and it or the device fails; the call is named.
absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices();

struct CudaBackendOptions {
  int device = 0;
  KvDtype kv_dtype = KvDtype::kBf16;  // kBf16 or kInt8
  KvPoolShape pool;                   // num_blocks ≥ 1; host_blocks ≥ 0; block_tokens a power of two, 2 to 256
  std::int32_t max_step_tokens = 2048;
  std::int32_t max_sequences = 256;    // most rows in one step
  std::int32_t max_top_logprobs = 20;  // of one row
  // Called as weights reach the device, with the bytes there so far and all of them, from the calling thread.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// What the backend takes of the device's memory: the very layout that MakeCudaBackend allocates by.
struct CudaMemoryPlan {
  std::int64_t weight_bytes = 0;
  std::int64_t workspace_bytes = 0;  // activations, logits, cuBLASLt's workspace, staging; whatever the pool's size
  std::int64_t block_bytes = 0;      // of one KV block
};
absl::StatusOr<CudaMemoryPlan> PlanCudaMemory(const Model& model, const CudaBackendOptions& options);

// Copies the weights to the device (the model may be closed afterwards) and allocates all it will ever use. Errors: no
// such device, a shape the kernels do not serve, too little memory, no cuBLASLt, in one line that names it.
//
// A step whose device fails is BACKEND_FAULT to the engine: Submit or Await return the CUDA call's name and error.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const Model& model, const CudaBackendOptions& options);

}  // namespace berth
