#include <memory>

#include "case.h"
#include "gemm.h"
#include "kernels/cuda/quantized.h"
#include "kernels/cuda/quantized_layout.h"
#include "model_shapes.h"

namespace berth::bench {
namespace {

using cuda::QuantizedType;

struct LayerProduct {
  const char* name;
  std::int32_t outputs;
  std::int32_t inputs;
};

// Query, key and value projections are one product, as are gate and up.
std::vector<LayerProduct> ProductsOf(const ModelShape& model) {
  const std::int32_t q_size = model.q_heads * model.head_dim;
  return {{"qkv", q_size + 2 * model.kv_heads * model.head_dim, model.hidden},
          {"out", model.hidden, q_size},
          {"gate-up", 2 * model.feed_forward, model.hidden},
          {"down", model.hidden, model.feed_forward},
          {"head", model.vocabulary, model.hidden}};
}

Case GemmCase(const std::string& name, const GemmShape& shape, const std::string& library_path) {
  const auto tokens = static_cast<double>(shape.tokens);
  const auto outputs = static_cast<double>(shape.outputs);
  const auto inputs = static_cast<double>(shape.inputs);
  const Cost cost = {.bytes = 2 * (outputs * inputs + tokens * (inputs + outputs)),
                     .flops = 2 * tokens * outputs * inputs};
  const auto make = [shape, library_path](Arena& arena) -> Launch {
    const auto gemm = std::make_shared<Gemm>(shape, library_path, arena);
    return [gemm](cudaStream_t stream) { gemm->Enqueue(stream); };
  };
  return {.name = name, .cost = cost, .make = make};
}

std::string TypeName(QuantizedType type) {
  switch (type) {
    case QuantizedType::kQ4_0:
      return "q4_0";
    case QuantizedType::kQ4_1:
      return "q4_1";
    case QuantizedType::kQ8_0:
      return "q8_0";
    case QuantizedType::kQ6_K:
      return "q6_k";
  }
  return "?";
}

cuda::QuantizedMatrix RandomMatrix(QuantizedType type, const LayerProduct& product, Arena& arena) {
  // Bytes that are no NaN as scales of any format.
  std::vector<std::uint8_t> pattern(4096);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::uint8_t>(i * 37 & 0x3b);
  const std::size_t bytes = cuda::QuantizedBytes(type, product.outputs, product.inputs);
  return {.data = arena.Fill(static_cast<std::int64_t>(bytes), pattern.data(), pattern.size()),
          .rows = product.outputs,
          .cols = product.inputs,
          .type = type};
}

double MatrixBytes(QuantizedType type, const LayerProduct& product) {
  return static_cast<double>(cuda::QuantizedBytes(type, product.outputs, product.inputs));
}

Case QuantizedCase(const std::string& name, QuantizedType type, const LayerProduct& product, std::int32_t tokens) {
  const auto make = [type, product, tokens](Arena& arena) -> Launch {
    const cuda::QuantizedMatmulParams params{
        .matrix = RandomMatrix(type, product, arena),
        .input = arena.RandomBf16(std::int64_t{tokens} * product.inputs),
        .output = arena.Allocate<std::uint16_t>(std::int64_t{tokens} * product.outputs),
        .output_stride = product.outputs,
        .num_tokens = tokens,
        .output_is_float = false};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchQuantizedMatmul, params, stream); };
  };
  const double bytes = MatrixBytes(type, product) + 2.0 * tokens * (product.inputs + product.outputs);
  return {
      .name = name, .cost = {.bytes = bytes, .flops = 2.0 * tokens * product.outputs * product.inputs}, .make = make};
}

Case DequantizeCase(const std::string& name, QuantizedType type, const LayerProduct& product) {
  const std::int64_t elements = std::int64_t{product.outputs} * product.inputs;
  const auto make = [type, product, elements](Arena& arena) -> Launch {
    const cuda::DequantizeParams params{.matrix = RandomMatrix(type, product, arena),
                                        .output = arena.Allocate<std::uint16_t>(elements)};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchDequantize, params, stream); };
  };
  const double bytes = MatrixBytes(type, product) + 2.0 * static_cast<double>(elements);
  return {.name = name, .cost = {.bytes = bytes, .flops = 0}, .make = make};
}

}  // namespace

void AddCeilings(const Settings& settings, std::vector<Case>& cases) {
  const bool toy = settings.extent == Extent::kToy;
  const std::int64_t copy_bytes = toy ? 1 << 16 : std::int64_t{1} << 30;
  const auto copy = [copy_bytes](Arena& arena) -> Launch {
    std::byte* from = arena.RandomBytes(copy_bytes);
    std::byte* to = arena.Allocate(copy_bytes);
    const auto bytes = static_cast<std::size_t>(copy_bytes);
    return [=](cudaStream_t stream) {
      BERTH_BENCH_CUDA(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    };
  };
  cases.push_back(
      {.name = kCopyCeiling, .cost = {.bytes = 2.0 * static_cast<double>(copy_bytes), .flops = 0}, .make = copy});
  for (const std::int64_t size : toy ? std::vector<std::int64_t>{64} : std::vector<std::int64_t>{4096, 8192}) {
    cases.push_back(GemmCase(kMatmulCeiling + std::to_string(size), {size, size, size}, settings.cublaslt_path));
  }
}

void AddGemms(const Settings& settings, std::vector<Case>& cases) {
  const bool toy = settings.extent == Extent::kToy;
  for (const ModelShape& model : ModelsOf(settings.extent)) {
    for (const LayerProduct& product : ProductsOf(model)) {
      for (const std::int32_t tokens : toy ? std::vector<std::int32_t>{1, 3} : std::vector<std::int32_t>{1, 32, 256}) {
        cases.push_back(
            GemmCase(std::string("gemm/") + model.name + "/" + product.name + "/tokens" + std::to_string(tokens),
                     {tokens, product.outputs, product.inputs}, settings.cublaslt_path));
      }
    }
  }
}

void AddQuantized(const Settings& settings, std::vector<Case>& cases) {
  for (const ModelShape& model : ModelsOf(settings.extent)) {
    for (const LayerProduct& product : ProductsOf(model)) {
      for (const QuantizedType type :
           {QuantizedType::kQ4_0, QuantizedType::kQ4_1, QuantizedType::kQ8_0, QuantizedType::kQ6_K}) {
        if (type == QuantizedType::kQ6_K && product.inputs % 256 != 0) continue;  // such a file has none
        const std::string suffix = TypeName(type) + "/" + model.name + "/" + product.name;
        const std::vector<std::int32_t> counts = settings.extent == Extent::kFull
                                                     ? std::vector<std::int32_t>{1, 4, 8, 16}
                                                     : std::vector<std::int32_t>{1, 16};
        for (const std::int32_t tokens : counts) {
          cases.push_back(
              QuantizedCase("quantized/" + suffix + "/tokens" + std::to_string(tokens), type, product, tokens));
        }
        cases.push_back(DequantizeCase("dequantize/" + suffix, type, product));
      }
    }
  }
}

}  // namespace berth::bench
