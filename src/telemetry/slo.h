// Whether a request that ended kept what its class promises.
#pragma once

#include <optional>

#include "berth/metrics.h"

namespace berth {

// Mean time between the tokens of a choice; none where no choice has two.
std::optional<Duration> TimePerOutputToken(const RequestEnded& request);

// None = it does not count. A request without a first token has missed it once it waited longer than promised, and
// where the server let it in and gave it up; one that was refused, or whose caller left in time, does not count.
std::optional<bool> KeptTimeToFirstToken(const ClassSlo& slo, const RequestEnded& request, RequestOutcome outcome);

// By the mean over the request's tokens.
std::optional<bool> KeptInterTokenLatency(const ClassSlo& slo, const RequestEnded& request);

}  // namespace berth
