// The methods that the metrics tell apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/metrics.h"

namespace berth {

// Of every service in proto/, such as "berth.v1.Inference/Generate": a method's RpcMethod is its place here.
std::vector<std::string> RpcMethodNames();
// REQUIRES: one of these names.
RpcMethod RpcMethodOf(std::string_view name);

}  // namespace berth
