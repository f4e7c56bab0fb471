// For programs that are linked with cuBLASLt, or with the tests' stand-in for it.
#include "runner/cuda/cublaslt_api.h"

namespace berth {

std::optional<CublasLtApi> LoadCublasLt(const std::string& /*path*/, std::string* /*error*/) {
  CublasLtApi api;
#define BERTH_CUBLASLT_TAKE(name) api.name = &::name;
  BERTH_CUBLASLT_FUNCTIONS(BERTH_CUBLASLT_TAKE)
#undef BERTH_CUBLASLT_TAKE
  return api;
}

}  // namespace berth
