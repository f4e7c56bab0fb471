#include "timing.h"

#include <algorithm>
#include <vector>

namespace berth::bench {
namespace {

constexpr std::int64_t kLeastFlushBytes = 1 << 20;
constexpr int kWarmUps = 3;

}  // namespace

Timer::Timer(const DeviceFacts& facts)
    : memory_(facts.memory_bytes),
      flush_bytes_(static_cast<std::size_t>(std::max(facts.l2_bytes * 5 / 2, kLeastFlushBytes))),
      flush_buffer_(memory_.Allocate(static_cast<std::int64_t>(flush_bytes_))) {
  BERTH_BENCH_CUDA(cudaStreamCreateWithFlags, &stream_, cudaStreamNonBlocking);
  BERTH_BENCH_CUDA(cudaEventCreateWithFlags, &begin_, cudaEventDefault);
  BERTH_BENCH_CUDA(cudaEventCreateWithFlags, &end_, cudaEventDefault);
}

Timer::~Timer() {
  static_cast<void>(cudaEventDestroy(end_));
  static_cast<void>(cudaEventDestroy(begin_));
  static_cast<void>(cudaStreamDestroy(stream_));
}

double Timer::RunOnce(const Launch& launch) {
  BERTH_BENCH_CUDA(cudaMemsetAsync, flush_buffer_, 0, flush_bytes_, stream_);
  BERTH_BENCH_CUDA(cudaEventRecord, begin_, stream_);
  launch(stream_);
  BERTH_BENCH_CUDA(cudaEventRecord, end_, stream_);
  BERTH_BENCH_CUDA(cudaStreamSynchronize, stream_);
  float milliseconds = 0;
  BERTH_BENCH_CUDA(cudaEventElapsedTime, &milliseconds, begin_, end_);
  return static_cast<double>(milliseconds) * 1e-3;
}

Timing Timer::Measure(const Launch& launch, int repetitions) {
  BERTH_BENCH_CUDA(cudaDeviceSynchronize);  // the case's memory is filled on another stream
  for (int i = 0; i < kWarmUps; ++i) RunOnce(launch);
  std::vector<double> seconds(static_cast<std::size_t>(repetitions));
  for (double& value : seconds) value = RunOnce(launch);
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](int percent) { return seconds[(seconds.size() - 1) * static_cast<std::size_t>(percent) / 100]; };
  return {.repetitions = repetitions,
          .median = at(50),
          .lowest = seconds.front(),
          .highest = seconds.back(),
          .p10 = at(10),
          .p90 = at(90)};
}

}  // namespace berth::bench
