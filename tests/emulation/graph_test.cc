// Graphs and their capture: what CUDA allows, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>

#include "emulation/fixture.h"
#include "emulation/runtime_kernels.h"

namespace berth::emulation {
namespace {

class GraphTest : public EmulationTest {
 protected:
  GraphTest() {
    EXPECT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamCreate(&side_), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&values_), 2 * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemset(values_, 0, 2 * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~GraphTest() override {
    if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
    (void)cudaEventDestroy(fork_);
    (void)cudaEventDestroy(join_);
    (void)cudaStreamDestroy(side_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(values_);
  }

  cudaError_t Begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    return cudaStreamBeginCapture(stream_, mode);
  }
  cudaError_t End() { return cudaStreamEndCapture(stream_, &graph_); }
  cudaError_t Fork() {
    const cudaError_t error = cudaEventRecord(fork_, stream_);
    return error != cudaSuccess ? error : cudaStreamWaitEvent(side_, fork_, 0);
  }
  cudaError_t Join() {
    const cudaError_t error = cudaEventRecord(join_, side_);
    return error != cudaSuccess ? error : cudaStreamWaitEvent(stream_, join_, 0);
  }
  void LaunchOnce() {
    EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  void ExpectInvalidated() {
    EXPECT_EQ(LaunchMultiplyAdd(values_, 1, 1, stream_), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph_, nullptr);
    EXPECT_EQ(LaunchMultiplyAdd(values_, 1, 1, stream_), cudaSuccess) << "the stream is usable again";
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t side_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
  float* values_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_F(GraphTest, ACaptureRunsNothingAndALaunchRunsAll) {
  ASSERT_EQ(Begin(), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(values_, 1, 1, stream_), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(values_, 10, 0, stream_), cudaSuccess);
  ASSERT_EQ(End(), cudaSuccess);
  std::size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2u);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(values_[0], 0);
  LaunchOnce();
  EXPECT_EQ(values_[0], 10);
  LaunchOnce();
  EXPECT_EQ(values_[0], 110) << "what memory holds is read at each launch";
}

TEST_F(GraphTest, ForkedStreamsRunInAnyOrderThatEventsAllow) {
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    settings().order = order;
    ASSERT_EQ(cudaMemset(values_, 0, 2 * sizeof(float)), cudaSuccess);
    ASSERT_EQ(Begin(), cudaSuccess);
    ASSERT_EQ(LaunchMultiplyAdd(values_, 1, 1, stream_), cudaSuccess);
    ASSERT_EQ(Fork(), cudaSuccess);
    ASSERT_EQ(LaunchMultiplyAdd(values_, 1, 1, stream_), cudaSuccess);
    ASSERT_EQ(LaunchMultiplyAdd(values_ + 1, 1, 5, side_), cudaSuccess);
    ASSERT_EQ(Join(), cudaSuccess);
    ASSERT_EQ(LaunchMultiplyAdd(values_, 100, 0, stream_), cudaSuccess);
    ASSERT_EQ(End(), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
    LaunchOnce();
    EXPECT_EQ(values_[0], 200);
    EXPECT_EQ(values_[1], 5);
    ASSERT_EQ(cudaGraphExecDestroy(executable_), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
    executable_ = nullptr;
    graph_ = nullptr;
  }
}

TEST_F(GraphTest, AnUnjoinedForkIsRefused) {
  ASSERT_EQ(Begin(), cudaSuccess);
  ASSERT_EQ(Fork(), cudaSuccess);
  ASSERT_EQ(LaunchMultiplyAdd(values_, 1, 1, side_), cudaSuccess);
  EXPECT_EQ(End(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph_, nullptr);
}

TEST_F(GraphTest, OnlyTheFirstStreamEndsACapture) {
  ASSERT_EQ(Begin(), cudaSuccess);
  ASSERT_EQ(Fork(), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(side_, &graph_), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(End(), cudaErrorIllegalState) << "there is none any more";
}

TEST_F(GraphTest, WaitingForACapturedStreamEndsTheCapture) {
  ASSERT_EQ(Begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  ExpectInvalidated();
}

TEST_F(GraphTest, WaitingForTheDeviceEndsTheCapture) {
  ASSERT_EQ(Begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  ExpectInvalidated();
}

TEST_F(GraphTest, UnsafeCallsAreRefusedUnlessTheCaptureIsRelaxed) {
  void* memory = nullptr;
  ASSERT_EQ(Begin(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
  ExpectInvalidated();
  ASSERT_EQ(Begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_EQ(End(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(GraphTest, TheLegacyStreamCannotWaitForACapturedOne) {
  ASSERT_EQ(Begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemset(values_, 0, sizeof(float)), cudaErrorStreamCaptureImplicit);
  ExpectInvalidated();
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
}

TEST_F(GraphTest, AnEventFromOutsideIsNoDependency) {
  ASSERT_EQ(cudaEventRecord(fork_, side_), cudaSuccess);
  ASSERT_EQ(Begin(), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, fork_, 0), cudaErrorStreamCaptureIsolation);
  ExpectInvalidated();
}

TEST_F(GraphTest, ACapturedEventCannotBeWaitedForByTheHost) {
  ASSERT_EQ(Begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(fork_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(End(), cudaSuccess);
}

TEST_F(GraphTest, AnUpdateTakesNewArgumentsButNoNewShape) {
  const auto capture = [&](float addend, int kernels) {
    EXPECT_EQ(Begin(), cudaSuccess);
    for (int i = 0; i < kernels; ++i) EXPECT_EQ(LaunchMultiplyAdd(values_, 1, addend, stream_), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    return graph;
  };
  graph_ = capture(1, 1);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  const cudaGraph_t other_argument = capture(5, 1);
  const cudaGraph_t other_shape = capture(5, 2);
  cudaGraphExecUpdateResultInfo info;
  ASSERT_EQ(cudaGraphExecUpdate(executable_, other_argument, &info), cudaSuccess);
  LaunchOnce();
  EXPECT_EQ(values_[0], 5);
  EXPECT_EQ(cudaGraphExecUpdate(executable_, other_shape, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_EQ(cudaGraphDestroy(other_argument), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(other_shape), cudaSuccess);
}

}  // namespace
}  // namespace berth::emulation
