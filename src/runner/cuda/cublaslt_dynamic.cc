#include <dlfcn.h>
#include <glob.h>

#include <string>
#include <vector>

#include "runner/cuda/cublaslt_api.h"

namespace berth {
namespace {

// Versions of one major number are compatible: "cuBLAS", "Library versions".
std::string LibraryName() { return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR); }

std::vector<std::string> Candidates(const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> candidates = {LibraryName()};
  const std::string pattern = "/usr/local/cuda*/lib64/" + LibraryName();
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    candidates.insert(candidates.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  } else {
    candidates.push_back(pattern);
  }
  globfree(&found);
  return candidates;
}

}  // namespace

std::optional<CublasLtApi> LoadCublasLt(const std::string& path, std::string* error) {
  void* library = nullptr;
  std::string tried;
  for (const std::string& candidate : Candidates(path)) {
    if (library == nullptr) library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  if (library == nullptr) {
    *error = "cuBLASLt is not there (tried " + tried + "): install NVIDIA's CUDA " + std::to_string(CUBLAS_VER_MAJOR) +
             " libraries, or name the file";
    return std::nullopt;
  }
  CublasLtApi api;
#define BERTH_CUBLASLT_LOOK_UP(name)                                      \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) {                                              \
    *error = "the library found as cuBLASLt has no " #name;               \
    return std::nullopt;                                                  \
  }
  BERTH_CUBLASLT_FUNCTIONS(BERTH_CUBLASLT_LOOK_UP)
#undef BERTH_CUBLASLT_LOOK_UP
  return api;
}

}  // namespace berth
