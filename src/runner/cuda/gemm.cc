#include "runner/cuda/gemm.h"

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace berth {
namespace {

#define BERTH_CUBLASLT_CALL(function, ...)                                                         \
  do {                                                                                             \
    if (const cublasStatus_t error_ = api_.function(__VA_ARGS__); error_ != CUBLAS_STATUS_SUCCESS) \
      return CublasLtError(#function, error_);                                                     \
  } while (false)

constexpr std::uint32_t kAlignmentBytes = 16;
constexpr cublasOperation_t kTransposed = CUBLAS_OP_T;

int BucketOf(std::int32_t tokens) { return std::bit_width(static_cast<std::uint32_t>(tokens - 1)); }

}  // namespace

absl::StatusOr<Gemms> Gemms::Create(const std::string& library_path) {
  std::string error;
  const std::optional<CublasLtApi> api = LoadCublasLt(library_path, &error);
  if (!api.has_value()) return absl::NotFoundError(error);
  Gemms gemms(*api);
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = api->cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return CublasLtError("cublasLtCreate", status);
  }
  gemms.handle_.reset(handle);
  return gemms;
}

absl::StatusOr<Gemms::Owned<cublasLtMatrixLayout_t>> Gemms::Layout(cudaDataType type, std::int64_t rows,
                                                                   std::int64_t columns, std::int64_t leading) const {
  cublasLtMatrixLayout_t layout = nullptr;
  BERTH_CUBLASLT_CALL(cublasLtMatrixLayoutCreate, &layout, type, static_cast<std::uint64_t>(rows),
                      static_cast<std::uint64_t>(columns), leading);
  return Owned<cublasLtMatrixLayout_t>(layout, api_.cublasLtMatrixLayoutDestroy);
}

// A row-major [a, b] is a column-major [b, a]: outputᵀ = (weightᵀ)ᵀ · inputᵀ.
absl::StatusOr<Gemms::Product> Gemms::Describe(const GemmShape& shape) const {
  cublasLtMatmulDesc_t description = nullptr;
  BERTH_CUBLASLT_CALL(cublasLtMatmulDescCreate, &description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  Owned<cublasLtMatmulDesc_t> owned(description, api_.cublasLtMatmulDescDestroy);
  BERTH_CUBLASLT_CALL(cublasLtMatmulDescSetAttribute, description, CUBLASLT_MATMUL_DESC_TRANSA, &kTransposed,
                      sizeof(kTransposed));
  auto weight = Layout(CUDA_R_16BF, shape.inputs, shape.outputs, shape.inputs);
  auto input = Layout(CUDA_R_16BF, shape.inputs, 1, shape.inputs);
  auto output = Layout(shape.float_output ? CUDA_R_32F : CUDA_R_16BF, shape.outputs, 1, shape.output_stride);
  for (const auto* layout : {&weight, &input, &output}) BERTH_TRY(layout->status());
  return Product{std::move(owned), *std::move(weight), *std::move(input), *std::move(output), {}, {}};
}

absl::Status Gemms::SetTokens(const Product& product, std::int32_t tokens) const {
  const auto columns = static_cast<std::uint64_t>(tokens);
  for (const cublasLtMatrixLayout_t layout : {product.input.get(), product.output.get()}) {
    BERTH_CUBLASLT_CALL(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns,
                        sizeof(columns));
  }
  return absl::OkStatus();
}

absl::StatusOr<cublasLtMatmulAlgo_t> Gemms::Choose(const GemmShape& shape, const Product& product,
                                                   std::int32_t tokens) const {
  cublasLtMatmulPreference_t preference = nullptr;
  BERTH_CUBLASLT_CALL(cublasLtMatmulPreferenceCreate, &preference);
  const Owned<cublasLtMatmulPreference_t> owned(preference, api_.cublasLtMatmulPreferenceDestroy);
  const std::size_t workspace_bytes = kWorkspaceBytes;
  BERTH_CUBLASLT_CALL(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                      &workspace_bytes, sizeof(workspace_bytes));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    BERTH_CUBLASLT_CALL(cublasLtMatmulPreferenceSetAttribute, preference, attribute, &kAlignmentBytes,
                        sizeof(kAlignmentBytes));
  }
  BERTH_TRY(SetTokens(product, tokens));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  BERTH_CUBLASLT_CALL(cublasLtMatmulAlgoGetHeuristic, handle_.get(), product.description.get(), product.weight.get(),
                      product.input.get(), product.output.get(), product.output.get(), preference, 1, &result, &found);
  if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(absl::StrCat("cublasLtMatmulAlgoGetHeuristic: no algorithm for ", tokens, " x ",
                                            shape.inputs, " times ", shape.inputs, " x ", shape.outputs));
  }
  return result.algo;
}

absl::Status Gemms::Prepare(const GemmShape& shape, std::int32_t max_tokens) {
  auto found = products_.find(shape);
  if (found == products_.end()) {
    absl::StatusOr<Product> product = Describe(shape);
    if (!product.ok()) return product.status();
    found = products_.emplace(shape, *std::move(product)).first;
  }
  Product& product = found->second;
  while (static_cast<int>(product.algorithms.size()) <= BucketOf(max_tokens)) {
    const auto algorithm = Choose(shape, product, std::int32_t{1} << product.algorithms.size());
    if (!algorithm.ok()) return algorithm.status();
    product.algorithms.push_back(*algorithm);
  }
  return absl::OkStatus();
}

absl::Status Gemms::Multiply(const GemmShape& shape, const std::uint16_t* weight, const std::uint16_t* input,
                             void* output, std::int32_t tokens, cudaStream_t stream) {
  const auto found = products_.find(shape);
  BERTH_CHECK(found != products_.end());
  Product& product = found->second;
  const auto bucket = static_cast<std::size_t>(BucketOf(tokens));
  BERTH_CHECK(bucket < product.algorithms.size());
  BERTH_TRY(SetTokens(product, tokens));
  const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1;
    const float zero = 0;
    return api_.cublasLtMatmul(handle_.get(), product.description.get(), &one, weight, product.weight.get(), input,
                               product.input.get(), &zero, output, product.output.get(), output, product.output.get(),
                               &algorithm, workspace_, kWorkspaceBytes, stream);
  };
  auto replacement = product.replacements.find(tokens);
  if (replacement == product.replacements.end()) {
    const cublasStatus_t status = multiply(product.algorithms[bucket]);
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    // INVALID_VALUE: an algorithm that wants more workspace for this number.
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
      return CublasLtError("cublasLtMatmul", status);
    }
    const auto algorithm = Choose(shape, product, tokens);
    if (!algorithm.ok()) return algorithm.status();
    replacement = product.replacements.emplace(tokens, *algorithm).first;
  }
  const cublasStatus_t status = multiply(replacement->second);
  return status == CUBLAS_STATUS_SUCCESS ? absl::OkStatus() : CublasLtError("cublasLtMatmul", status);
}

}  // namespace berth
