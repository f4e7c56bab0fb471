#include "engine/output_stage.h"

#include <pthread.h>

#include <span>
#include <utility>

#include "engine/request_output.h"

namespace berth {
namespace {

// Batches kept for reuse; more than that pile up only behind a slow sink.
constexpr std::size_t kMaxSpare = 8;

}  // namespace

OutputStage::OutputStage(OutputListener* listener, MetricSink* metrics, const Clock* clock)
    : listener_(listener), metrics_(metrics), clock_(clock), thread_([this] { Run(); }) {}

OutputStage::~OutputStage() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

std::unique_ptr<OutputBatch> OutputStage::Post(std::unique_ptr<OutputBatch> batch) {
  std::unique_ptr<OutputBatch> next;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(batch));
    if (!spare_.empty()) {
      next = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  posted_.notify_one();
  return next != nullptr ? std::move(next) : std::make_unique<OutputBatch>();
}

void OutputStage::Run() {
  pthread_setname_np(pthread_self(), "berth-output");
  std::vector<std::unique_ptr<OutputBatch>> reading;
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::swap(reading, waiting_);
    lock.unlock();
    for (const auto& batch : reading) {
      Read(batch.get());
      batch->Clear();
    }
    lock.lock();
    for (auto& batch : reading) {
      if (spare_.size() < kMaxSpare) spare_.push_back(std::move(batch));
    }
    reading.clear();
  }
}

void OutputStage::Read(OutputBatch* batch) {
  const TokenTimes times{.drawn = batch->drawn_at, .shown = clock_->Now()};
  for (OutputRecord& record : batch->records) {
    const std::span top =
        std::span(batch->top)
            .subspan(static_cast<std::size_t>(record.top_begin), static_cast<std::size_t>(record.num_top));
    switch (record.kind) {
      case OutputRecord::Kind::kAdmitted:
        record.request->Admit(std::move(*record.admitted));
        break;
      case OutputRecord::Kind::kPromptLogprob:
        record.request->AddPromptLogprob(record, top);
        break;
      case OutputRecord::Kind::kToken:
        record.request->AddToken(record, top, times, listener_, &came_);
        break;
      case OutputRecord::Kind::kEnd:
        TellTokens();  // whoever hears that it is over finds its tokens counted
        record.request->End(record.end.get());
        record.end.reset();  // and the sink with it
        listener_->OnRequestOver();
        break;
    }
  }
  TellTokens();
}

void OutputStage::TellTokens() {
  if (came_.empty()) return;
  metrics_->OnTokens(came_);
  came_.clear();
}

}  // namespace berth
