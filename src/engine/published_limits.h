// The policy in force, for everybody to read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "berth/kv.h"
#include "berth/policy.h"
#include "engine/demand_limits.h"

namespace berth {

// Thread-safe; what was read stays valid for as long as it is held.
class PublishedLimits {
 public:
  // REQUIRES: the policy is valid for the pool.
  PublishedLimits(const KvPoolShape& pool, const Policy& policy, std::int32_t vocab_size,
                  std::int32_t max_context_tokens)
      : pool_(pool), vocab_size_(vocab_size), max_context_tokens_(max_context_tokens) {
    SetPolicy(policy);
  }

  void SetPolicy(const Policy& policy) {
    auto limits = std::make_shared<const DemandLimits>(pool_, policy, vocab_size_, max_context_tokens_);
    const std::lock_guard lock(mutex_);
    std::swap(limits_, limits);
  }

  std::shared_ptr<const DemandLimits> Get() const {
    const std::lock_guard lock(mutex_);
    return limits_;
  }

 private:
  const KvPoolShape pool_;
  const std::int32_t vocab_size_;
  const std::int32_t max_context_tokens_;
  mutable std::mutex mutex_;
  std::shared_ptr<const DemandLimits> limits_;  // guarded by mutex_
};

}  // namespace berth
