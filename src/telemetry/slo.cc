#include "telemetry/slo.h"

namespace berth {

std::optional<Duration> TimePerOutputToken(const RequestEnded& request) {
  const std::int64_t gaps = request.usage.output_tokens - request.choices;
  if (gaps < 1) return std::nullopt;
  // The choices decode side by side: each took the whole time.
  return request.usage.decode_time * request.choices / gaps;
}

std::optional<bool> KeptTimeToFirstToken(const ClassSlo& slo, const RequestEnded& request, RequestOutcome outcome) {
  if (!slo.time_to_first_token.has_value() || outcome == RequestOutcome::kRejected) return std::nullopt;
  if (request.usage.output_tokens > 0) return request.usage.time_to_first_token <= *slo.time_to_first_token;
  if (request.total_time > *slo.time_to_first_token) return false;
  switch (outcome) {
    case RequestOutcome::kShed:
    case RequestOutcome::kQueueTimeout:
    case RequestOutcome::kError:
      return false;
    default:
      return std::nullopt;
  }
}

std::optional<bool> KeptInterTokenLatency(const ClassSlo& slo, const RequestEnded& request) {
  const std::optional<Duration> mean = TimePerOutputToken(request);
  if (!slo.inter_token_latency.has_value() || !mean.has_value()) return std::nullopt;
  return *mean <= *slo.inter_token_latency;
}

}  // namespace berth
