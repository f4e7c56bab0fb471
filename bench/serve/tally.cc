#include "tally.h"

namespace berth::bench {

void Tally::AddServed(const Slo& slo, Duration to_first, Duration to_last, Duration to_end, std::int64_t num_tokens) {
  ++served;
  first_token.Add(to_first);
  end_to_end.Add(to_end);
  const Duration mean = num_tokens > 1 ? (to_last - to_first) / (num_tokens - 1) : Duration::zero();
  if (num_tokens > 1) per_token.Add(mean);
  const bool first_in_time = !slo.time_to_first_token || to_first <= *slo.time_to_first_token;
  const bool rest_in_time = !slo.inter_token_latency || mean <= *slo.inter_token_latency;
  if (first_in_time && rest_in_time) ++met_slo;
}

void Tally::Count(const std::string& reason, Reasons* reasons) {
  const std::lock_guard lock(mutex_);
  ++(*reasons)[reason];
}

Tally::Reasons Tally::Copy(const Reasons& reasons) const {
  const std::lock_guard lock(mutex_);
  return reasons;
}

}  // namespace berth::bench
