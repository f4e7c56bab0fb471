// The output thread: what a step drew becomes text and events there, so that the engine's thread never waits for
// either.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "berth/clock.h"
#include "berth/metrics.h"
#include "engine/output_batch.h"
#include "engine/output_listener.h"

namespace berth {

// Batches are read in the order in which they were posted. What waits is bounded by what the running requests may still
// put out. Sinks are called by this one thread: one that is slow delays the events of others, and never a step.
class OutputStage {
 public:
  // All must outlive it.
  OutputStage(OutputListener* listener, MetricSink* metrics, const Clock* clock);
  // Reads what was posted, then ends.
  ~OutputStage();
  OutputStage(const OutputStage&) = delete;
  OutputStage& operator=(const OutputStage&) = delete;

  // Any thread. Takes the batch and returns an empty one to fill next; one lock and one wake.
  std::unique_ptr<OutputBatch> Post(std::unique_ptr<OutputBatch> batch);

 private:
  void Run();
  void Read(OutputBatch* batch);
  void TellTokens();

  OutputListener* const listener_;
  MetricSink* const metrics_;
  const Clock* const clock_;
  std::vector<TokenCame> came_;  // the thread's own: not told yet
  std::mutex mutex_;
  std::condition_variable posted_;
  // Guarded by mutex_:
  std::vector<std::unique_ptr<OutputBatch>> waiting_;
  std::vector<std::unique_ptr<OutputBatch>> spare_;
  bool stopped_ = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace berth
