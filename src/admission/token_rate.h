// A tenant's token rate: a bucket that fills with time, charged by estimate and refunded by actual use.
#pragma once

#include <algorithm>
#include <optional>

#include "berth/clock.h"
#include "berth/policy.h"

namespace berth {

class TokenRate {
 public:
  // A tenant without a rate is unlimited. The bucket starts full; a change keeps what is in it, within the new burst.
  void SetPolicy(const TenantPolicy& tenant) {
    const bool is_new = !per_second_.has_value();
    per_second_.reset();
    if (tenant.tokens_per_minute.has_value()) per_second_ = *tenant.tokens_per_minute / 60.0;
    burst_ = tenant.burst_tokens;
    level_ = is_new ? burst_ : std::min(level_, burst_);
  }

  bool CanEverPass(double tokens) const { return !per_second_.has_value() || tokens <= burst_; }

  // Takes the tokens, or says how long until they are there.
  std::optional<Duration> Take(double tokens, TimePoint now) {
    if (!per_second_.has_value()) return std::nullopt;
    if (now > filled_at_) {
      level_ = std::min(burst_, level_ + ToSeconds(now - filled_at_) * *per_second_);
      filled_at_ = now;
    }
    if (tokens > level_) {
      const double seconds = *per_second_ > 0.0 ? std::min((tokens - level_) / *per_second_, 86400.0) : 86400.0;
      return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    }
    level_ -= tokens;
    return std::nullopt;
  }

  bool limits() const { return per_second_.has_value(); }
  void Refund(double tokens) { level_ = std::min(burst_, level_ + tokens); }

 private:
  std::optional<double> per_second_;
  double burst_ = 0.0;
  double level_ = 0.0;
  TimePoint filled_at_{};
};

}  // namespace berth
