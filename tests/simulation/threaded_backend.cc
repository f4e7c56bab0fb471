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
      random_(scenario.seed),
      inner_(scenario.pool, 1 << 20, scenario.max_steps_in_flight) {
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
  BERTH_CHECK_MSG(in_flight_ < info_.max_steps_in_flight, "too many steps in flight");
  if (random_() % 2 == 0 && TakeFailure()) return absl::UnavailableError("the device is away");
  ++in_flight_;
  const std::uint64_t laziness = random_() % 16;
  {
    const std::lock_guard lock(mutex_);
    CheckWrites(plan);
    swapped_blocks_ += std::ssize(plan.swap_in);
    BERTH_CHECK(inner_.Submit(plan).ok());
    tokens_.push_back(std::ssize(plan.token_ids));
    if (laziness == 0 && waiting_.empty()) {
      RunStep();
    } else {
      waiting_.push_back(laziness);
    }
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status ThreadedBackend::Await(StepResult* result) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ > 0; });
  --done_;
  --in_flight_;
  absl::Status status = inner_.Await(result);
  result->busy = step_time_ + step_token_time_ * tokens_.front();
  tokens_.pop_front();
  return status;
}

void ThreadedBackend::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    const std::uint64_t laziness = waiting_.front();
    lock.unlock();
    // Not a wait for anything: others get the chance to act while a step runs.
    for (std::uint64_t i = 0; i < laziness; ++i) std::this_thread::yield();
    if (laziness > 13) std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
    RunStep();
    waiting_.pop_front();
    changed_.notify_all();
  }
}

void ThreadedBackend::RunStep() {
  if (TakeFailure()) inner_.FailNextStep();
  inner_.RunNext();
  clock_->Advance(Plans(1));
  ++steps_;
  ++done_;
  notify_();
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
