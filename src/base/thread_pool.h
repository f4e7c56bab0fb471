// A fork-join pool for the backend's threads. No work stealing and no dynamic scheduling: who computes what depends on
// the thread's index alone.
#pragma once

#include <functional>
#include <memory>

namespace berth {

class ThreadPool {
 public:
  // `num_threads` ≥ 1 counts the caller: num_threads - 1 threads are started, named "<name>-<index>".
  ThreadPool(int num_threads, const char* name);
  ~ThreadPool();  // joins; no Run may be in progress
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(0) on the calling thread and task(1) .. task(num_threads - 1) on the pool's, and returns when all have
  // returned. What they wrote is visible to the caller. One Run at a time; `task` must not throw.
  void Run(const std::function<void(int thread_index)>& task);

  // To be called by every thread inside a running task: returns when all have arrived. Cheap (spins, then sleeps).
  void Barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace berth
