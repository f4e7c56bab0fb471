#include <dlfcn.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runner/cuda/cublaslt_api.h"

namespace berth {
namespace {

// Versions of one major number are compatible: "cuBLAS", "Library versions".
const std::string& LibraryName() {
  static const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  return name;
}

}  // namespace

absl::StatusOr<CublasLtApi> LoadCublasLt(const std::string& path) {
  std::vector<std::string> candidates = {path};
  if (path.empty()) candidates = {LibraryName(), absl::StrCat("/usr/local/cuda/lib64/", LibraryName())};
  void* library = nullptr;
  for (const std::string& candidate : candidates) {
    if (library == nullptr) library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cuBLASLt is not there (tried ", absl::StrJoin(candidates, ", "),
                                            "): install NVIDIA's CUDA ", CUBLAS_VER_MAJOR,
                                            " libraries, or name the file"));
  }
  CublasLtApi api;
#define BERTH_CUBLASLT_LOOK_UP(name)                                      \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) return absl::NotFoundError("the library found as cuBLASLt has no " #name);
  BERTH_CUBLASLT_FUNCTIONS(BERTH_CUBLASLT_LOOK_UP)
#undef BERTH_CUBLASLT_LOOK_UP
  return api;
}

}  // namespace berth
