// What the stand-in for the CUDA runtime promises about streams, events and copies: everything happens as late as the
// API allows, and not later.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "emulation/fixture.h"
#include "emulation/runtime_kernels.h"

namespace berth::emulation {
namespace {

class StreamTest : public EmulationTest {
 protected:
  StreamTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned_), sizeof(float)), cudaSuccess);
  }
  ~StreamTest() override {
    (void)cudaStreamDestroy(first_);
    (void)cudaStreamDestroy(second_);
    (void)cudaFree(device_);
    (void)cudaFreeHost(pinned_);
  }

  // Waits for nothing that was not waited for: looks at the memory itself.
  float Peek() const { return *device_; }
  cudaError_t CopyIn(const float* value, cudaStream_t stream) {
    return cudaMemcpyAsync(device_, value, sizeof(float), cudaMemcpyHostToDevice, stream);
  }
  cudaError_t CopyOut(float* value, cudaStream_t stream) {
    return cudaMemcpyAsync(value, device_, sizeof(float), cudaMemcpyDeviceToHost, stream);
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  float* device_ = nullptr;
  float* pinned_ = nullptr;
};

TEST_F(StreamTest, WorkHappensWhenSomeoneWaits) {
  *pinned_ = 2;
  ASSERT_EQ(CopyIn(pinned_, first_), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 10, 1, first_), cudaSuccess);
  EXPECT_TRUE(std::isnan(Peek()));
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(Peek(), 21);
}

TEST_F(StreamTest, APinnedSourceIsReadWhenTheCopyRuns) {
  *pinned_ = 2;
  ASSERT_EQ(CopyIn(pinned_, first_), cudaSuccess);
  *pinned_ = 3;
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(Peek(), 3) << "the source was changed too early";
}

TEST_F(StreamTest, APageableSourceIsReadBeforeTheCallReturns) {
  float value = 2;
  ASSERT_EQ(CopyIn(&value, first_), cudaSuccess);
  value = 3;
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(Peek(), 2);
}

TEST_F(StreamTest, ACopyFromPageableMemoryMayArriveAfterTheCallReturns) {
  float value = 2;
  ASSERT_EQ(cudaMemcpy(device_, &value, sizeof(value), cudaMemcpyHostToDevice), cudaSuccess);
  value = 3;
  EXPECT_TRUE(std::isnan(Peek())) << "a stream that does not wait for the legacy one could be first";
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(Peek(), 2);
  *pinned_ = 4;
  ASSERT_EQ(cudaMemcpy(device_, pinned_, sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(Peek(), 4) << "pinned memory is free again when the call returns";
}

TEST_F(StreamTest, ACopyToPageableMemoryIsOverWhenTheCallReturns) {
  float value = 2;
  ASSERT_EQ(CopyIn(&value, first_), cudaSuccess);
  *pinned_ = 0;
  ASSERT_EQ(CopyOut(pinned_, first_), cudaSuccess);
  EXPECT_EQ(*pinned_, 0) << "to pinned memory it is not";
  float result = 0;
  ASSERT_EQ(CopyOut(&result, first_), cudaSuccess);
  EXPECT_EQ(result, 2);
  EXPECT_EQ(*pinned_, 2);
}

TEST_F(StreamTest, StreamsAreOrderedByEventsAlone) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  float value = 5;
  ASSERT_EQ(CopyIn(&value, first_), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 2, 0, second_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_TRUE(std::isnan(Peek())) << "nothing made the second stream wait";

  ASSERT_EQ(cudaEventRecord(event, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event, 0), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 2, 0, second_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(Peek(), 10);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(StreamTest, AQueryMakesProgressAndIsNoErrorToKeep) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  float value = 5;
  ASSERT_EQ(CopyIn(&value, first_), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 2, 0, first_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, first_), cudaSuccess);
  int queries = 0;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++queries;
  EXPECT_EQ(queries, 3);
  EXPECT_EQ(Peek(), 10);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady) << "as on a GPU: the caller clears it";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(StreamTest, TimeIsBetweenTwoEventsThatHavePassed) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle) << "never recorded";
  ASSERT_EQ(cudaEventRecord(begin, first_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, first_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  ASSERT_EQ(cudaEventDestroy(begin), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(end), cudaSuccess);
}

TEST_F(StreamTest, TheLegacyStreamIsOrderedWithBlockingStreamsOnly) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const float one = 1;
  ASSERT_EQ(CopyIn(&one, blocking), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 1, 1, nullptr), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 10, 0, blocking), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(device_, 1, 5, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_TRUE(std::isnan(Peek())) << "a non-blocking stream waits for none of it";
  ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_EQ(Peek(), 20);
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(StreamTest, ACopyWaitsForTheLegacyStream) {
  *pinned_ = 1;
  ASSERT_EQ(cudaMemcpy(device_, pinned_, sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(Peek(), 1);
  ASSERT_EQ(cudaMemset(device_, 0, sizeof(float)), cudaSuccess);
  EXPECT_EQ(Peek(), 1) << "a fill of device memory is not waited for";
  float value = 7;
  ASSERT_EQ(cudaMemcpy(&value, device_, sizeof(value), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 0);
}

TEST_F(StreamTest, ADestroyedHandleIsRefused) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(LaunchNothing(dim3(1), dim3(1), stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, first_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace berth::emulation
