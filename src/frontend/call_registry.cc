#include "frontend/call_registry.h"

#include <functional>
#include <utility>
#include <vector>

namespace berth {

void CallRegistry::Add(std::shared_ptr<Call> call) {
  const std::lock_guard lock(mutex_);
  calls_.insert(std::move(call));
}

void CallRegistry::Remove(const std::shared_ptr<Call>& call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
  if (calls_.empty()) emptied_.notify_all();
}

void CallRegistry::AbortStuck(TimePoint now, Duration timeout) {
  std::vector<std::function<void()>> aborters;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Call>& call : calls_) {
      if (std::function<void()> abort = call->AborterIfStuck(now, timeout)) aborters.push_back(std::move(abort));
    }
  }
  for (const std::function<void()>& abort : aborters) abort();
}

void CallRegistry::WaitUntilEmpty(Duration timeout) {
  std::unique_lock lock(mutex_);
  emptied_.wait_for(lock, timeout, [this] { return calls_.empty(); });
}

}  // namespace berth
