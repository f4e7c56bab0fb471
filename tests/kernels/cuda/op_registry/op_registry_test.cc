// The registry of operations: op_registry_test runs every case, --list names them with their bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string_view>
#include <utility>

#include "emulation/device_array.h"
#include "kernels/cuda/op_registry/op_case.h"

namespace berth::cuda {
namespace {

std::vector<OpEntry> Registry() {
  std::vector<OpEntry> entries;
  for (const auto cases : {ElementwiseCases, RopeCases, AttentionCases, QuantizedCases, SamplingCases}) {
    std::vector<OpEntry> part = cases();
    std::move(part.begin(), part.end(), std::back_inserter(entries));
  }
  return entries;
}

bool Agrees(double got, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::abs(got - expected) <= bound;
}

// The first elements that differ by more than they may, and how many do.
void Compare(const OpEntry& entry, const char* backend, const Expected& expected, const std::vector<double>& bounds,
             const std::vector<double>& got) {
  constexpr int kShown = 5;
  ASSERT_EQ(got.size(), expected.values.size()) << entry.op << '.' << entry.name << ", " << expected.name;
  ASSERT_EQ(bounds.size(), expected.values.size()) << entry.op << '.' << entry.name << ", " << expected.name;
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (Agrees(got[i], expected.values[i], bounds[i]) || ++wrong > kShown) continue;
    ADD_FAILURE() << entry.op << '.' << entry.name << ", " << backend << ", " << expected.name << '[' << i
                  << "]: expected " << expected.values[i] << ", got " << got[i] << ", off by "
                  << std::abs(got[i] - expected.values[i]) << ", bound " << bounds[i] << " (" << entry.bound << ')';
  }
  EXPECT_EQ(wrong, 0) << "of " << got.size() << " elements of " << expected.name;
}

class RegisteredCase : public ::testing::Test {
 public:
  explicit RegisteredCase(const OpEntry& entry) : entry_(entry) {}

  void TestBody() override {
    const std::unique_ptr<OpCase> op = entry_.make();
    const std::vector<Expected> expected = op->Oracle();
    if (const std::optional<Outputs> outputs = op->OnCpu()) {
      ASSERT_EQ(outputs->size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!expected[i].cpu_bounds.empty()) {
          Compare(entry_, "CPU", expected[i], expected[i].cpu_bounds, (*outputs)[i]);
        }
      }
    }
    if (!op->CudaIsBuilt()) GTEST_SKIP() << "not built";
    BERTH_REQUIRE_DEVICE();
    const Outputs outputs = op->OnCuda();
    ASSERT_EQ(outputs.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      Compare(entry_, "CUDA", expected[i], expected[i].cuda_bounds, outputs[i]);
    }
  }

 private:
  const OpEntry& entry_;
};

}  // namespace
}  // namespace berth::cuda

int main(int argc, char** argv) {
  const std::vector<berth::cuda::OpEntry> registry = berth::cuda::Registry();
  if (argc > 1 && std::string_view(argv[1]) == "--list") {
    for (const auto& entry : registry) {
      std::printf("%-20s %-44s %s\n", entry.op.c_str(), entry.name.c_str(), entry.bound.c_str());
    }
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  for (const auto& entry : registry) {
    ::testing::RegisterTest(entry.op.c_str(), entry.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [&entry]() -> ::testing::Test* { return new berth::cuda::RegisteredCase(entry); });
  }
  return RUN_ALL_TESTS();
}
