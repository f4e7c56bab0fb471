// The functions of cuBLASLt that the backend calls. The library is some hundred megabytes and only machines with a GPU
// need it: it is loaded when the first backend is made.
#pragma once

#include <cublasLt.h>

#include <optional>
#include <string>

namespace berth {

#define BERTH_CUBLASLT_FUNCTIONS(X)       \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)

struct CublasLtApi {
#define BERTH_CUBLASLT_MEMBER(name) decltype(&::name) name = nullptr;
  BERTH_CUBLASLT_FUNCTIONS(BERTH_CUBLASLT_MEMBER)
#undef BERTH_CUBLASLT_MEMBER
};

// The library at `path`, or, where that is empty, the one that the dynamic loader finds, or the toolkit's in
// /usr/local/cuda*. Loaded once and never unloaded. Nothing, and one line in `error`, where there is none or it lacks a
// function. Standard types only: the benchmarks of kernels use it as well.
std::optional<CublasLtApi> LoadCublasLt(const std::string& path, std::string* error);

}  // namespace berth
