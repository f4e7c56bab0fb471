// A stand-in for cuBLASLt: the functions that NVIDIA's cublasLt.h declares, as far as matrix products of one type with
// float32 sums and an optional bias need them. The product is OpenBLAS's, of values widened to float32.
//
// Stricter than the library may be: an algorithm is held to the alignments and the workspace that its heuristic was
// asked with, and what it would use of the workspace is overwritten.
#include <cblas.h>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "emulation/runtime.h"

struct cublasLtContext {};

namespace berth::emulation {
namespace {

// What the opaque handles hold.
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t leading;
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a;
  cublasOperation_t transpose_b;
  cublasLtEpilogue_t epilogue;
  const void* bias;
};

struct Preference {
  std::uint64_t workspace_bytes;
  std::uint32_t alignment_a;
  std::uint32_t alignment_b;
  std::uint32_t alignment_c;
  std::uint32_t alignment_d;
};
constexpr Preference kDefaultPreference{0, 256, 256, 256, 256};

struct Algorithm {
  std::uint64_t number;   // from 1; 0 was never chosen
  std::uint64_t columns;  // of the product that it was asked for
  std::uint64_t workspace_bytes;
  Preference preference;
};

template <typename Value, typename Opaque>
Value Get(const Opaque* handle) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(Opaque));
  Value value;
  std::memcpy(&value, handle->data, sizeof(value));
  return value;
}

template <typename Value, typename Opaque>
void Set(Opaque* handle, const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(Opaque));
  std::memcpy(handle->data, &value, sizeof(value));
}

template <typename Field>
cublasStatus_t Assign(Field* field, const void* bytes, std::size_t size) {
  if (size != sizeof(Field)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field, bytes, sizeof(Field));
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t ElementBytes(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
      return 2;
    default:
      return 0;
  }
}

float Load(const std::byte* base, std::size_t index, cudaDataType_t type) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, base + index * ElementBytes(type), ElementBytes(type));
  if (type == CUDA_R_32F) return std::bit_cast<float>(bits);
  if (type == CUDA_R_16BF) return std::bit_cast<float>(bits << 16);
  return __half2float(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)));
}

void Store(std::byte* base, std::size_t index, cudaDataType_t type, float value) {
  if (type == CUDA_R_32F) {
    std::memcpy(base + index * 4, &value, 4);
  } else if (type == CUDA_R_16BF) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    std::memcpy(base + index * 2, &rounded, 2);
  } else {
    const __half rounded = __float2half_rn(value);
    std::memcpy(base + index * 2, &rounded, 2);
  }
}

// Column-major, without the gap that the leading dimension leaves.
std::vector<float> LoadMatrix(const void* address, const Layout& layout) {
  std::vector<float> values(layout.rows * layout.columns);
  const auto leading = static_cast<std::size_t>(layout.leading);
  for (std::size_t column = 0; column < layout.columns; ++column) {
    for (std::size_t row = 0; row < layout.rows; ++row) {
      values[column * layout.rows + row] =
          Load(static_cast<const std::byte*>(address), column * leading + row, layout.type);
    }
  }
  return values;
}

struct Product {
  Description description;
  float alpha;
  float beta;
  const void* a;
  Layout a_layout;
  const void* b;
  Layout b_layout;
  const void* c;
  Layout c_layout;
  void* d;
  Layout d_layout;
  void* workspace;
  std::uint64_t workspace_bytes;
};

std::uint64_t Depth(const Product& product) {
  return product.description.transpose_a == CUBLAS_OP_N ? product.a_layout.columns : product.a_layout.rows;
}

void Run(const Product& product) {
  if (product.workspace_bytes > 0) std::memset(product.workspace, 0xff, product.workspace_bytes);
  const Layout& layout = product.d_layout;
  const std::vector<float> a = LoadMatrix(product.a, product.a_layout);
  const std::vector<float> b = LoadMatrix(product.b, product.b_layout);
  std::vector<float> sums(layout.rows * layout.columns);
  if (product.beta != 0) sums = LoadMatrix(product.c, product.c_layout);
  const auto operation = [](cublasOperation_t transpose) {
    return transpose == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
  };
  openblas_set_num_threads(1);
  cblas_sgemm(CblasColMajor, operation(product.description.transpose_a), operation(product.description.transpose_b),
              static_cast<int>(layout.rows), static_cast<int>(layout.columns), static_cast<int>(Depth(product)),
              product.alpha, a.data(), static_cast<int>(product.a_layout.rows), b.data(),
              static_cast<int>(product.b_layout.rows), product.beta, sums.data(), static_cast<int>(layout.rows));
  for (std::size_t column = 0; column < layout.columns; ++column) {
    for (std::size_t row = 0; row < layout.rows; ++row) {
      float value = sums[column * layout.rows + row];
      if (product.description.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        value += Load(static_cast<const std::byte*>(product.description.bias), row, layout.type);
      }
      Store(static_cast<std::byte*>(product.d), column * static_cast<std::size_t>(layout.leading) + row, layout.type,
            value);
    }
  }
}

bool SameShape(const Layout& a, const Layout& b) { return a.rows == b.rows && a.columns == b.columns; }

cublasStatus_t CheckShapes(const Description& description, const Layout& a, const Layout& b, const Layout& c,
                           const Layout& d) {
  if (description.compute != CUBLAS_COMPUTE_32F || description.scale != CUDA_R_32F || a.type != b.type ||
      c.type != d.type || (d.type != a.type && d.type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (ElementBytes(layout->type) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (layout->leading < static_cast<std::int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool plain_a = description.transpose_a == CUBLAS_OP_N;
  const bool plain_b = description.transpose_b == CUBLAS_OP_N;
  const bool fits = (plain_a ? a.rows : a.columns) == d.rows && (plain_b ? b.columns : b.rows) == d.columns &&
                    (plain_a ? a.columns : a.rows) == (plain_b ? b.rows : b.columns) && SameShape(c, d);
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

bool OnDevice(const void* address, const Layout& layout) {
  if (layout.rows == 0 || layout.columns == 0) return true;
  const std::size_t elements = static_cast<std::size_t>(layout.leading) * (layout.columns - 1) + layout.rows;
  return context().memory.KindOf(address, elements * ElementBytes(layout.type)) == MemoryKind::kDevice;
}

bool IsAligned(const void* address, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

// An algorithm is promised for the shape that it was asked with. The first one, which is the fastest, takes other
// numbers of columns but not all of them: some it does not serve, for some its workspace would have to be larger.
cublasStatus_t Serves(const Algorithm& algorithm, const Layout& d) {
  if (algorithm.number > 1 || d.columns == algorithm.columns) return CUBLAS_STATUS_SUCCESS;
  if (d.columns % 3 == 2) return CUBLAS_STATUS_NOT_SUPPORTED;
  return d.columns % 5 == 4 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckOperands(const Product& product, const Algorithm& algorithm) {
  const Preference& preference = algorithm.preference;
  const bool reads_c = product.beta != 0;
  if (!IsAligned(product.a, preference.alignment_a) || !IsAligned(product.b, preference.alignment_b) ||
      (reads_c && !IsAligned(product.c, preference.alignment_c)) || !IsAligned(product.d, preference.alignment_d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // A GPU would find out when the product runs.
  if (!OnDevice(product.a, product.a_layout) || !OnDevice(product.b, product.b_layout) ||
      (reads_c && !OnDevice(product.c, product.c_layout)) || !OnDevice(product.d, product.d_layout)) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace berth::emulation

using berth::emulation::Algorithm;
using berth::emulation::Assign;
using berth::emulation::Description;
using berth::emulation::Get;
using berth::emulation::Layout;
using berth::emulation::Preference;
using berth::emulation::Set;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  *handle = new cublasLtMatrixLayoutOpaque_t{};
  Set(*handle, Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* bytes,
                                                std::size_t size) {
  auto layout = Get<Layout>(handle);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      status = Assign(&layout.rows, bytes, size);
      break;
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      status = Assign(&layout.columns, bytes, size);
      break;
    case CUBLASLT_MATRIX_LAYOUT_LD:
      status = Assign(&layout.leading, bytes, size);
      break;
    default:
      break;
  }
  Set(handle, layout);
  return status;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *handle = new cublasLtMatmulDescOpaque_t{};
  Set(*handle, Description{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* bytes, std::size_t size) {
  auto description = Get<Description>(handle);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      status = Assign(&description.transpose_a, bytes, size);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      status = Assign(&description.transpose_b, bytes, size);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      status = Assign(&description.epilogue, bytes, size);
      if (description.epilogue != CUBLASLT_EPILOGUE_DEFAULT && description.epilogue != CUBLASLT_EPILOGUE_BIAS) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
      }
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      status = Assign(&description.bias, bytes, size);
      break;
    default:
      break;
  }
  Set(handle, description);
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = new cublasLtMatmulPreferenceOpaque_t{};
  Set(*handle, berth::emulation::kDefaultPreference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* bytes,
                                                    std::size_t size) {
  auto preference = Get<Preference>(handle);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      status = Assign(&preference.workspace_bytes, bytes, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      status = Assign(&preference.alignment_a, bytes, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      status = Assign(&preference.alignment_b, bytes, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      status = Assign(&preference.alignment_c, bytes, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      status = Assign(&preference.alignment_d, bytes, size);
      break;
    default:
      break;
  }
  Set(handle, preference);
  return status;
}

// Algorithms that compute the same and differ in the workspace they want: none, 16 KiB and 64 KiB.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference_handle, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = berth::emulation::CheckShapes(Get<Description>(description), Get<Layout>(a),
                                                              Get<Layout>(b), Get<Layout>(c), Get<Layout>(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto preference = Get<Preference>(preference_handle);
  std::uint64_t number = 0;
  for (const std::uint64_t workspace_bytes : {std::uint64_t{64} << 10, std::uint64_t{16} << 10, std::uint64_t{0}}) {
    ++number;
    if (workspace_bytes > preference.workspace_bytes || *found == wanted) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    Set(&result.algo, Algorithm{number, Get<Layout>(d).columns, workspace_bytes, preference});
    result.workspaceSize = workspace_bytes;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const berth::emulation::Product product{
      .description = Get<Description>(description),
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta),
      .a = a,
      .a_layout = Get<Layout>(a_layout),
      .b = b,
      .b_layout = Get<Layout>(b_layout),
      .c = c,
      .c_layout = Get<Layout>(c_layout),
      .d = d,
      .d_layout = Get<Layout>(d_layout),
      .workspace = workspace,
      .workspace_bytes = algo == nullptr ? 0 : Get<Algorithm>(algo).workspace_bytes};
  const Algorithm algorithm = algo == nullptr
                                  ? Algorithm{1, product.d_layout.columns, 0, berth::emulation::kDefaultPreference}
                                  : Get<Algorithm>(algo);
  if (algorithm.number == 0 || product.workspace_bytes > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = berth::emulation::Serves(algorithm, product.d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = berth::emulation::CheckShapes(product.description, product.a_layout, product.b_layout, product.c_layout,
                                         product.d_layout);
  const cudaError_t error = berth::emulation::Guarded([&]() -> cudaError_t {
    if (status == CUBLAS_STATUS_SUCCESS) status = berth::emulation::CheckOperands(product, algorithm);
    if (status != CUBLAS_STATUS_SUCCESS) return cudaSuccess;
    return berth::emulation::Enqueue(stream, {nullptr, [product] { berth::emulation::Run(product); }, {}});
  });
  return error == cudaSuccess ? status : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
