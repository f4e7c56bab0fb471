#include "frontend/tokenizer_pool.h"

#include <pthread.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace berth {

TokenizerPool::TokenizerPool(int num_threads, std::size_t max_unticketed_jobs, const char* name)
    : max_unticketed_jobs_(max_unticketed_jobs), name_(name) {
  BERTH_CHECK(num_threads >= 1);
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

TokenizerPool::~TokenizerPool() { Stop(); }

bool TokenizerPool::PostTicketed(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  ticketed_.push_back(std::move(job));
  posted_.notify_one();
  return true;
}

bool TokenizerPool::TryPost(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || unticketed_.size() >= max_unticketed_jobs_) return false;
  unticketed_.push_back(std::move(job));
  posted_.notify_one();
  return true;
}

void TokenizerPool::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
    posted_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void TokenizerPool::Run(int index) {
  pthread_setname_np(pthread_self(), (std::string(name_) + "-" + std::to_string(index)).c_str());
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopped_ || !ticketed_.empty() || !unticketed_.empty(); });
    std::deque<std::function<void()>>& queue = ticketed_.empty() ? unticketed_ : ticketed_;
    if (queue.empty()) return;
    const std::function<void()> job = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace berth
