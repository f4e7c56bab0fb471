// A matrix product through cuBLASLt as a backend would ask for it: output = input · weightᵀ, all row-major, which for
// the column-major library is outputᵀ = weight · inputᵀ.
#pragma once

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::emulation {

class LtProduct {
 public:
  LtProduct(std::uint64_t outputs, std::uint64_t tokens, std::uint64_t inputs, cudaDataType type = CUDA_R_16BF) {
    EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Describe(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    const auto leading = static_cast<std::int64_t>(inputs);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&weight_, type, inputs, outputs, leading), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&input_, type, inputs, tokens, leading), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&output_, type, outputs, tokens, static_cast<std::int64_t>(outputs)),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;
  ~LtProduct() {
    (void)cublasLtMatmulPreferenceDestroy(preference_);
    for (const cublasLtMatrixLayout_t layout : {weight_, input_, output_}) (void)cublasLtMatrixLayoutDestroy(layout);
    (void)cublasLtMatmulDescDestroy(description_);
    (void)cublasLtDestroy(handle_);
  }

  template <typename Value>
  void Describe(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  }
  template <typename Value>
  void Prefer(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> Algorithms() const {
    std::array<cublasLtMatmulHeuristicResult_t, 8> results;
    int found = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, description_, weight_, input_, output_, output_, preference_,
                                             static_cast<int>(results.size()), results.data(), &found),
              CUBLAS_STATUS_SUCCESS);
    return {results.begin(), results.begin() + found};
  }

  cublasStatus_t Run(const void* weight, const void* input, void* output, const cublasLtMatmulAlgo_t* algorithm,
                     void* workspace, std::size_t workspace_bytes, cudaStream_t stream = nullptr,
                     float beta = 0) const {
    const float alpha = 1;
    return cublasLtMatmul(handle_, description_, &alpha, weight, weight_, input, input_, &beta, output, output_, output,
                          output_, algorithm, workspace, workspace_bytes, stream);
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr;
  cublasLtMatrixLayout_t input_ = nullptr;
  cublasLtMatrixLayout_t output_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace berth::emulation
