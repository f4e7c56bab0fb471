#include "runner/cuda/products.h"

#include <type_traits>

#include "kernels/cuda/quantized.h"

namespace berth {
namespace {

GemmShape WholeShape(const CudaProjection& projection, bool float_output) {
  return {projection.outputs, projection.inputs, projection.outputs, float_output};
}

GemmShape PartShape(const CudaProjection& projection, const CudaProjection::Part& part, bool float_output) {
  return {part.matrix.rows, projection.inputs, projection.outputs, float_output};
}

bool TakesCodes(const CudaProjection& projection, std::int32_t tokens) {
  return !projection.quantized.empty() && tokens <= cuda::kQuantizedMatmulTokens;
}

}  // namespace

absl::Status Products::Prepare(const CudaProjection& projection, bool float_output, std::int32_t max_tokens) {
  if (TakesCodes(projection, max_tokens)) return absl::OkStatus();
  if (projection.dense != nullptr) return gemms_.Prepare(WholeShape(projection, float_output), max_tokens);
  for (const CudaProjection::Part& part : projection.quantized) {
    BERTH_TRY(gemms_.Prepare(PartShape(projection, part, float_output), max_tokens));
  }
  return absl::OkStatus();
}

template <typename Output>
absl::Status Products::MultiplyAs(const CudaProjection& projection, const std::uint16_t* input, Output* output,
                                  std::int32_t tokens, cudaStream_t stream) {
  constexpr bool kFloat = std::is_same_v<Output, float>;
  const bool takes_codes = TakesCodes(projection, tokens);
  if (!takes_codes && projection.dense != nullptr) {
    return gemms_.Multiply(WholeShape(projection, kFloat), projection.dense, input, output, tokens, stream);
  }
  for (const CudaProjection::Part& part : projection.quantized) {
    Output* to = output + part.first_output;
    if (takes_codes) {
      BERTH_CUDA_CALL(cuda::LaunchQuantizedMatmul,
                      {.matrix = part.matrix,
                       .input = input,
                       .output = to,
                       .output_stride = projection.outputs,
                       .num_tokens = tokens,
                       .output_is_float = kFloat},
                      stream);
    } else {
      BERTH_CUDA_CALL(cuda::LaunchDequantize, {.matrix = part.matrix, .output = dequantized_}, stream);
      BERTH_TRY(gemms_.Multiply(PartShape(projection, part, kFloat), dequantized_, input, to, tokens, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status Products::Multiply(const CudaProjection& projection, const std::uint16_t* input, std::uint16_t* output,
                                std::int32_t tokens, cudaStream_t stream) {
  return MultiplyAs(projection, input, output, tokens, stream);
}

absl::Status Products::Multiply(const CudaProjection& projection, const std::uint16_t* input, float* output,
                                std::int32_t tokens, cudaStream_t stream) {
  return MultiplyAs(projection, input, output, tokens, stream);
}

}  // namespace berth
