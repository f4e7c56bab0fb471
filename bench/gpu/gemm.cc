#include "gemm.h"

#include <optional>

namespace berth::bench {
namespace {

// What NVIDIA recommends for Hopper: "cuBLAS", "Using the cuBLASLt API".
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void CheckLt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CaseFailure(std::string(call) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
  }
}
#define BERTH_BENCH_LT(function, ...) CheckLt(api_.function(__VA_ARGS__), #function)

}  // namespace

CublasLtApi Gemm::Load(const std::string& library_path) {
  std::string error;
  const std::optional<CublasLtApi> api = LoadCublasLt(library_path, &error);
  if (!api.has_value()) throw CaseSkipped(error);
  return *api;
}

Gemm::Gemm(const GemmShape& shape, const std::string& library_path, Arena& arena)
    : api_(Load(library_path)),
      weight_(arena.RandomBf16(shape.outputs * shape.inputs)),
      input_(arena.RandomBf16(shape.tokens * shape.inputs)),
      output_(arena.Allocate<std::uint16_t>(shape.tokens * shape.outputs)),
      workspace_(arena.Allocate(std::int64_t{kWorkspaceBytes})) {
  Describe(shape);
  ChooseAlgorithm();
}

Gemm::~Gemm() {
  for (const cublasLtMatrixLayout_t layout : {weight_layout_, input_layout_, output_layout_}) {
    if (layout != nullptr) static_cast<void>(api_.cublasLtMatrixLayoutDestroy(layout));
  }
  if (description_ != nullptr) static_cast<void>(api_.cublasLtMatmulDescDestroy(description_));
  if (handle_ != nullptr) static_cast<void>(api_.cublasLtDestroy(handle_));
}

// The library is column-major: outputᵀ = (weightᵀ)ᵀ · inputᵀ.
void Gemm::Describe(const GemmShape& shape) {
  const auto outputs = static_cast<std::uint64_t>(shape.outputs);
  const auto inputs = static_cast<std::uint64_t>(shape.inputs);
  const auto tokens = static_cast<std::uint64_t>(shape.tokens);
  BERTH_BENCH_LT(cublasLtCreate, &handle_);
  BERTH_BENCH_LT(cublasLtMatmulDescCreate, &description_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  BERTH_BENCH_LT(cublasLtMatmulDescSetAttribute, description_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                 sizeof transposed);
  BERTH_BENCH_LT(cublasLtMatrixLayoutCreate, &weight_layout_, CUDA_R_16BF, inputs, outputs, shape.inputs);
  BERTH_BENCH_LT(cublasLtMatrixLayoutCreate, &input_layout_, CUDA_R_16BF, inputs, tokens, shape.inputs);
  BERTH_BENCH_LT(cublasLtMatrixLayoutCreate, &output_layout_, CUDA_R_16BF, outputs, tokens, shape.outputs);
}

void Gemm::ChooseAlgorithm() {
  cublasLtMatmulPreference_t preference = nullptr;
  BERTH_BENCH_LT(cublasLtMatmulPreferenceCreate, &preference);
  const std::size_t workspace_bytes = kWorkspaceBytes;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  cublasStatus_t status = api_.cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = api_.cublasLtMatmulAlgoGetHeuristic(handle_, description_, weight_layout_, input_layout_, output_layout_,
                                                 output_layout_, preference, 1, &result, &found);
  }
  static_cast<void>(api_.cublasLtMatmulPreferenceDestroy(preference));
  CheckLt(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) throw CaseFailure("cublasLtMatmulAlgoGetHeuristic: no algorithm");
  algorithm_ = result.algo;
}

void Gemm::Enqueue(cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  BERTH_BENCH_LT(cublasLtMatmul, handle_, description_, &one, weight_, weight_layout_, input_, input_layout_, &zero,
                 output_, output_layout_, output_, output_layout_, &algorithm_, workspace_, kWorkspaceBytes, stream);
}

}  // namespace berth::bench
