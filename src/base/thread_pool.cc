#include "base/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace berth {
namespace {

// A phase of a decode step takes some tens of microseconds: waiting that long awake is cheaper than two futex calls.
constexpr std::chrono::microseconds kSpinTime{50};
constexpr int kSpinsPerClockRead = 64;

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits until `word` is no longer `old`. `spin` is off where threads outnumber the cores: a spinner would then hold the
// core that the awaited thread needs.
void WaitWhileEqual(const std::atomic<std::uint32_t>& word, std::uint32_t old, bool spin) {
  if (spin) {
    const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
    do {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        CpuRelax();
      }
    } while (std::chrono::steady_clock::now() < give_up);
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

// The kernel keeps 15 characters of a thread's name.
void NameThisThread(const std::string& name) { pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()); }

}  // namespace

struct ThreadPool::State {
  // Constant after construction.
  int num_threads = 1;
  bool spin = false;
  std::vector<std::thread> threads;

  // Written by the caller of Run before it advances `generation`.
  const std::function<void(int)>* task = nullptr;
  bool stop = false;

  // Each on its own cache line: waiters of one are not disturbed by writes to another.
  alignas(64) std::atomic<std::uint32_t> generation{0};
  alignas(64) std::atomic<std::uint32_t> running{0};  // workers that have not finished the current task
  alignas(64) std::atomic<std::uint32_t> arrived{0};  // threads inside the current Barrier
  alignas(64) std::atomic<std::uint32_t> barrier_phase{0};

  void Work(int index) {
    std::uint32_t seen = 0;
    while (true) {
      WaitWhileEqual(generation, seen, spin);
      ++seen;
      if (stop) return;
      (*task)(index);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads, const char* name) : state_(std::make_unique<State>()) {
  BERTH_CHECK(num_threads >= 1);
  state_->num_threads = num_threads;
  state_->spin = num_threads <= static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 1; i < num_threads; ++i) {
    state_->threads.emplace_back([state = state_.get(), i, thread_name = std::string(name) + "-" + std::to_string(i)] {
      NameThisThread(thread_name);
      state->Work(i);
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::Run(const std::function<void(int thread_index)>& task) {
  State& state = *state_;
  if (state.num_threads > 1) {
    BERTH_CHECK(state.running.load(std::memory_order_acquire) == 0);
    state.task = &task;
    state.running.store(static_cast<std::uint32_t>(state.num_threads - 1), std::memory_order_relaxed);
    state.generation.fetch_add(1, std::memory_order_release);
    state.generation.notify_all();
  }
  task(0);
  for (std::uint32_t left = state.running.load(std::memory_order_acquire); left != 0;
       left = state.running.load(std::memory_order_acquire)) {
    WaitWhileEqual(state.running, left, state.spin);
  }
}

void ThreadPool::Barrier() {
  State& state = *state_;
  const std::uint32_t phase = state.barrier_phase.load(std::memory_order_relaxed);
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(state.num_threads)) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.barrier_phase.store(phase + 1, std::memory_order_release);
    state.barrier_phase.notify_all();
  } else {
    WaitWhileEqual(state.barrier_phase, phase, state.spin);
  }
}

}  // namespace berth
