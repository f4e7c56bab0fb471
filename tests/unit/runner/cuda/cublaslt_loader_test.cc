// The library as a program without it finds it.
#include <gtest/gtest.h>

#include <string>

#include "runner/cuda/cublaslt_api.h"

namespace berth::test {
namespace {

TEST(CublasLtLoader, AMissingLibraryIsToldInOneLine) {
  std::string error;
  EXPECT_FALSE(LoadCublasLt("/nowhere/libcublasLt.so.13", &error).has_value());
  EXPECT_EQ(error,
            "cuBLASLt is not there (tried /nowhere/libcublasLt.so.13): install NVIDIA's CUDA 13 libraries, or name the "
            "file");
}

TEST(CublasLtLoader, ALibraryThatIsAnotherIsTold) {
  std::string error;
  EXPECT_FALSE(LoadCublasLt("libm.so.6", &error).has_value());
  EXPECT_EQ(error, "the library found as cuBLASLt has no cublasLtCreate");
}

}  // namespace
}  // namespace berth::test
