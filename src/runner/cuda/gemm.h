// Matrix products through cuBLASLt: output = input · weightᵀ, all row-major, bfloat16 in, float32 sums. The library is
// column-major; that is dealt with here and nowhere else.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runner/cuda/cublaslt_api.h"
#include "runner/cuda/cuda_call.h"

namespace berth {

// What a product has fixed before it is known how many tokens there are.
struct GemmShape {
  std::int32_t outputs = 0;
  std::int32_t inputs = 0;         // a multiple of 8
  std::int64_t output_stride = 0;  // elements from a token's outputs to the next one's
  bool float_output = false;       // else bfloat16

  // NOLINTNEXTLINE(modernize-use-nullptr): the 0 of the comparison is none
  auto operator<=>(const GemmShape&) const = default;
};

// One per backend; called from one thread.
class Gemms {
 public:
  // What the products may use of the device's memory: the 32 MiB that NVIDIA recommends for Hopper ("cuBLAS", "Using
  // the cuBLASLt API").
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  static absl::StatusOr<Gemms> Create(const std::string& library_path);

  // `memory` holds kWorkspaceBytes.
  void UseWorkspace(std::byte* memory) { workspace_ = memory; }

  // Chooses the algorithms for up to max_tokens tokens, so that no step has to.
  absl::Status Prepare(const GemmShape& shape, std::int32_t max_tokens);

  // Pointers are to device memory at multiples of 16 bytes. REQUIRES: the shape was prepared for so many tokens.
  absl::Status Multiply(const GemmShape& shape, const std::uint16_t* weight, const std::uint16_t* input, void* output,
                        std::int32_t tokens, cudaStream_t stream);

 private:
  template <typename Handle>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

  // The library's description of a product. Algorithms are chosen for powers of two and serve fewer tokens as well:
  // the operands' alignment does not depend on their number, and the workspace suffices. One that does not take some
  // number all the same is replaced for that number alone.
  struct Product {
    Owned<cublasLtMatmulDesc_t> description;
    Owned<cublasLtMatrixLayout_t> weight;
    Owned<cublasLtMatrixLayout_t> input;
    Owned<cublasLtMatrixLayout_t> output;
    std::vector<cublasLtMatmulAlgo_t> algorithms;               // [i]: for up to 2^i tokens
    std::map<std::int32_t, cublasLtMatmulAlgo_t> replacements;  // by number of tokens
  };

  explicit Gemms(const CublasLtApi& api) : api_(api), handle_(nullptr, api.cublasLtDestroy) {}

  absl::StatusOr<Product> Describe(const GemmShape& shape) const;
  absl::StatusOr<Owned<cublasLtMatrixLayout_t>> Layout(cudaDataType type, std::int64_t rows, std::int64_t columns,
                                                       std::int64_t leading) const;
  absl::Status SetTokens(const Product& product, std::int32_t tokens) const;
  absl::StatusOr<cublasLtMatmulAlgo_t> Choose(const GemmShape& shape, const Product& product,
                                              std::int32_t tokens) const;

  CublasLtApi api_;
  Owned<cublasLtHandle_t> handle_;
  std::byte* workspace_ = nullptr;
  std::map<GemmShape, Product> products_;
};

}  // namespace berth
