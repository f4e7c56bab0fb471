// The stand-in for the CUDA runtime: limits, memory, errors, the device; and the orders that threads run in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <utility>
#include <vector>

#include "emulation/device_array.h"
#include "emulation/fixture.h"
#include "emulation/launch.h"
#include "emulation/runtime_kernels.h"

namespace berth::emulation {
namespace {

using RuntimeTest = EmulationTest;

std::vector<unsigned> RecordedOrder(Order order, std::uint64_t seed) {
  settings().order = order;
  settings().seed = seed;
  constexpr unsigned kBlocks = 3;
  constexpr unsigned kThreads = 70;
  const DeviceArray<unsigned> counter(std::vector<unsigned>{0});
  const DeviceArray<unsigned> recorded(kBlocks * kThreads);
  EXPECT_EQ(LaunchRecordOrder(kBlocks, kThreads, counter.data(), recorded.data()), cudaSuccess);
  return recorded.Read();
}

TEST_F(RuntimeTest, ForwardAndReverseAreOpposites) {
  std::vector<unsigned> ascending(3 * 70);
  std::iota(ascending.begin(), ascending.end(), 0u);
  EXPECT_EQ(RecordedOrder(Order::kForward, 1), ascending);
  std::reverse(ascending.begin(), ascending.end());
  EXPECT_EQ(RecordedOrder(Order::kReverse, 1), ascending);
}

TEST_F(RuntimeTest, ASeedRepeatsItsOrderAndAnotherHasAnother) {
  for (const Order order : {Order::kRandom, Order::kSkew}) {
    const std::vector<unsigned> first = RecordedOrder(order, 1);
    EXPECT_EQ(RecordedOrder(order, 1), first);
    EXPECT_NE(RecordedOrder(order, 2), first);
    std::vector<unsigned> sorted = first;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted.back(), sorted.size() - 1) << "every thread runs once";
  }
}

TEST_F(RuntimeTest, ACallFailsByPlanOnceAndDoesNothing) {
  FailCall(2, cudaErrorMemoryAllocation);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  void* none = nullptr;
  EXPECT_EQ(cudaMalloc(&none, 16), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(none, nullptr);
  EXPECT_FALSE(FailCall(1)) << "it has come";
  EXPECT_TRUE(FailCall(0)) << "it was still to come";
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(RuntimeTest, LaunchesAreHeldToTheDevicesLimits) {
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(1024), nullptr), cudaSuccess);
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(1025), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(32, 32, 2), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(1, 1, 65), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchNothing(dim3(0), dim3(1), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchNothing(dim3(70000), dim3(1), nullptr), cudaSuccess);
  EXPECT_EQ(LaunchNothing(dim3(1, 65536), dim3(1), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(RuntimeTest, MoreThan48KiBOfSharedMemoryMustBeAskedFor) {
  static constexpr char kFunction = 0;
  const auto launch = [](std::size_t bytes) {
    return EnqueueKernel(&kFunction, dim3(1), dim3(1), bytes, nullptr, [] {});
  };
  const auto ask_for = [](int bytes) {
    return cudaFuncSetAttribute(&kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(launch(48 * 1024), cudaSuccess);
  EXPECT_EQ(launch(48 * 1024 + 1), cudaErrorInvalidValue);
  EXPECT_EQ(ask_for(100 * 1024), cudaSuccess);
  EXPECT_EQ(launch(100 * 1024), cudaSuccess);
  EXPECT_EQ(launch(100 * 1024 + 1), cudaErrorInvalidValue);
  EXPECT_EQ(ask_for(227 * 1024 + 1), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, MemoryBeginsAsNanAndIsCounted) {
  settings().device_memory_bytes = 1000;
  float* memory = nullptr;
  void* more = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 400), cudaSuccess);
  EXPECT_TRUE(std::all_of(memory, memory + 100, [](float value) { return std::isnan(value); }));
  EXPECT_EQ(cudaMalloc(&more, 601), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, 600u);
  EXPECT_EQ(total_bytes, 1000u);
  EXPECT_EQ(CountLiveObjects().device_bytes, 400u);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue) << "not pinned memory";
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, CopiesStayWithinTheirMemoryAndDirection) {
  const DeviceArray<float> device(4);
  std::vector<float> host(8);
  EXPECT_EQ(cudaMemcpy(device.data(), host.data(), 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data(), host.data(), 16, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(device.data(), host.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemset(device.data() + 1, 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host.data(), 0, 16), cudaErrorInvalidValue) << "not device memory";
}

TEST_F(RuntimeTest, AnErrorOfACallIsKeptUntilItIsTaken) {
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
}

TEST_F(RuntimeTest, AFaultStaysUntilTheDeviceIsReset) {
  void* memory = nullptr;
  EXPECT_EQ(LaunchTrap(nullptr), cudaSuccess) << "the launch itself is good";
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(1), nullptr), cudaErrorLaunchFailure);
  EXPECT_NE(TakeFault().value_or("").find("runtime_kernels.cu"), std::string::npos);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(64), nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(RuntimeTest, ThereIsOneDeviceOfCapability90) {
  int value = 0;
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, nullptr, 128, 100 * 1024), cudaSuccess);
  EXPECT_EQ(value, 2) << "bound by shared memory";
}

// Not an assertion: what the emulation costs on the machine that runs it, in its own time.
TEST_F(RuntimeTest, CostIsReported) {
  const auto time = [](unsigned blocks, unsigned threads, int rounds) {
    const std::uint64_t switches = counters().switches;
    const std::clock_t begin = std::clock();
    EXPECT_EQ(LaunchBarriers(blocks, threads, rounds), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return std::pair(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, counters().switches - switches);
  };
  constexpr unsigned kBlocks = 400;
  constexpr unsigned kThreads = 128;
  time(1, 256, 0);  // the stacks are there afterwards
  const auto plain = time(kBlocks, kThreads, 0);
  const auto barriers = time(4, 256, 50);
  std::printf("threads without a barrier: %.1f million/s; a switch: %.1f ns\n", kBlocks * kThreads / plain.first * 1e-6,
              barriers.first / static_cast<double>(barriers.second) * 1e9);
}

}  // namespace
}  // namespace berth::emulation
