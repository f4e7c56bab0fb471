// A projection times the activations of some tokens, by what suits its weights and the number of tokens.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runner/cuda/cuda_weights.h"
#include "runner/cuda/gemm.h"

namespace berth {

// Called from one thread.
class Products {
 public:
  explicit Products(Gemms gemms) : gemms_(std::move(gemms)) {}

  // `gemm_workspace` has Gemms::kWorkspaceBytes, `dequantized` room for the largest quantised part as bfloat16.
  void UseWorkspace(std::byte* gemm_workspace, std::uint16_t* dequantized) {
    gemms_.UseWorkspace(gemm_workspace);
    dequantized_ = dequantized;
  }

  // Before the first product of so many tokens.
  absl::Status Prepare(const CudaProjection& projection, bool float_output, std::int32_t max_tokens);

  // input: [tokens, inputs] bfloat16; output: [tokens, outputs] bfloat16 or float32.
  absl::Status Multiply(const CudaProjection& projection, const std::uint16_t* input, std::uint16_t* output,
                        std::int32_t tokens, cudaStream_t stream);
  absl::Status Multiply(const CudaProjection& projection, const std::uint16_t* input, float* output,
                        std::int32_t tokens, cudaStream_t stream);

 private:
  template <typename Output>
  absl::Status MultiplyAs(const CudaProjection& projection, const std::uint16_t* input, Output* output,
                          std::int32_t tokens, cudaStream_t stream);

  Gemms gemms_;
  std::uint16_t* dequantized_ = nullptr;
};

}  // namespace berth
