#include "threaded_backend.h"

#include <chrono>
#include <set>
#include <utility>

#include "base/check.h"
#include "random_policy.h"

namespace berth::simulation {

ThreadedBackend::ThreadedBackend(const Scenario& scenario, std::int32_t max_context_tokens, test::FakeClock* clock)
    : step_time_(scenario.step_time),
      step_token_time_(scenario.step_token_time),
      clock_(clock),
      inner_(scenario.pool),
      random_(scenario.seed) {
  info_ = inner_.info();
  info_.max_context_tokens = max_context_tokens;
  thread_ = std::thread([this] { Work(); });
}

ThreadedBackend::~ThreadedBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool ThreadedBackend::TakeFailure() {
  std::int64_t due = failures_due_;
  while (due > 0) {
    if (!failures_due_.compare_exchange_weak(due, due - 1)) continue;
    ++failures_;
    return true;
  }
  return false;
}

absl::Status ThreadedBackend::Submit(const StepPlan& plan) {
  BERTH_CHECK_MSG(!busy_, "two steps in flight");
  if (random_() % 2 == 0 && TakeFailure()) return absl::UnavailableError("the device is away");
  busy_ = true;
  const std::uint64_t laziness = random_() % 16;
  if (laziness == 0) {
    RunStep(plan);
    const std::lock_guard lock(mutex_);
    done_ = true;
    notify_();
    return absl::OkStatus();
  }
  {
    const std::lock_guard lock(mutex_);
    plan_ = &plan;
    laziness_ = laziness;
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status ThreadedBackend::Await(StepResult* result) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  done_ = false;
  busy_ = false;
  std::swap(*result, result_);
  return status_;
}

void ThreadedBackend::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || plan_ != nullptr; });
    if (stopped_) return;
    const StepPlan* plan = std::exchange(plan_, nullptr);
    const std::uint64_t laziness = laziness_;
    lock.unlock();
    // Not a wait for anything: others get the chance to act while a step runs.
    for (std::uint64_t i = 0; i < laziness; ++i) std::this_thread::yield();
    if (laziness > 13) std::this_thread::sleep_for(std::chrono::microseconds(100));
    RunStep(*plan);
    lock.lock();
    done_ = true;
    changed_.notify_all();
    notify_();
  }
}

void ThreadedBackend::RunStep(const StepPlan& plan) {
  CheckWrites(plan);
  swapped_blocks_ += std::ssize(plan.swap_in);
  if (TakeFailure()) inner_.FailNextStep();
  BERTH_CHECK(inner_.Submit(plan).ok());
  status_ = inner_.Await(&result_);
  result_.busy = step_time_ + step_token_time_ * std::ssize(plan.token_ids);
  clock_->Advance(Plans(1));
  ++steps_;
}

// Nobody reads in a step what another row of it writes.
void ThreadedBackend::CheckWrites(const StepPlan& plan) {
  const std::int64_t width = info_.pool.block_tokens;
  std::set<BlockId> written;
  std::multiset<BlockId> in_tables;
  for (const StepRow& row : plan.rows) {
    for (std::int32_t i = 0; i < row.num_blocks; ++i) {
      const BlockId block = plan.block_ids[static_cast<std::size_t>(row.block_begin + i)];
      in_tables.insert(block);
      const bool writes = (i + 1) * width > row.first_position && i * width < row.first_position + row.num_tokens;
      if (writes) written.insert(block);
    }
  }
  for (const BlockId block : written) {
    if (in_tables.count(block) > 1 && fault_.empty()) fault_ = "a block that a row writes is in another row's table";
  }
}

}  // namespace berth::simulation
