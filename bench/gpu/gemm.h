// A product through cuBLASLt: output = input · weightᵀ, all row-major bfloat16 with float32 sums.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "device.h"
#include "runner/cuda/cublaslt_api.h"

namespace berth::bench {

struct GemmShape {
  std::int64_t tokens;
  std::int64_t outputs;
  std::int64_t inputs;
};

class Gemm {
 public:
  // Throws CaseSkipped where there is no library, CaseFailure where it has no algorithm.
  Gemm(const GemmShape& shape, const std::string& library_path, Arena& arena);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void Enqueue(cudaStream_t stream) const;

 private:
  static CublasLtApi Load(const std::string& library_path);
  void Describe(const GemmShape& shape);
  void ChooseAlgorithm();

  CublasLtApi api_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t weight_layout_ = nullptr;
  cublasLtMatrixLayout_t input_layout_ = nullptr;
  cublasLtMatrixLayout_t output_layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  std::uint16_t* weight_;
  std::uint16_t* input_;
  std::uint16_t* output_;
  std::byte* workspace_;
};

}  // namespace berth::bench
