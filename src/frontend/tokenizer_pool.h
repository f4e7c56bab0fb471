// Threads for what takes a while, such as tokenizing, so that gRPC's own never wait for it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace berth {

// Thread-safe. Two queues: jobs of requests that hold a queue ticket (the tickets bound them) go before the others
// (bounded here).
class TokenizerPool {
 public:
  // `name` is the threads' in tools that show them; not copied.
  TokenizerPool(int num_threads, std::size_t max_unticketed_jobs, const char* name = "tokenizer");
  ~TokenizerPool();  // as Stop
  TokenizerPool(const TokenizerPool&) = delete;
  TokenizerPool& operator=(const TokenizerPool&) = delete;

  // False, and the job is dropped, after Stop.
  [[nodiscard]] bool PostTicketed(std::function<void()> job);
  // False also where so many wait already.
  [[nodiscard]] bool TryPost(std::function<void()> job);

  // Runs what was posted and joins the threads. Idempotent; not to be called by a job.
  void Stop();

 private:
  void Run(int index);

  const std::size_t max_unticketed_jobs_;
  const char* const name_;
  std::mutex mutex_;
  std::condition_variable posted_;
  // Guarded by mutex_.
  std::deque<std::function<void()>> ticketed_;
  std::deque<std::function<void()>> unticketed_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace berth
