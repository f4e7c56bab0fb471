// A CUDA backend on the emulation.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "../backend_harness.h"
#include "emulation/fixture.h"
#include "runner/cuda/cuda_backend.h"

namespace berth::test {

class CudaBackendTest : public emulation::EmulationTest {
 protected:
  // A small one.
  static CudaBackendOptions Options(std::int32_t num_blocks = 8, std::int32_t block_tokens = 16) {
    CudaBackendOptions options;
    options.pool = {num_blocks, block_tokens};
    options.max_step_tokens = 64;
    options.max_sequences = 8;
    return options;
  }

  static std::unique_ptr<Backend> Make(const Model& model, const CudaBackendOptions& options) {
    absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(model, options);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return backend.ok() ? *std::move(backend) : nullptr;
  }
};

}  // namespace berth::test
