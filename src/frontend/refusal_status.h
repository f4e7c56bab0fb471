// How a call ends, in gRPC's words.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <utility>
#include <vector>

#include "berth/admission.h"
#include "berth/event.h"

namespace berth {

// How a call ends; OK by default.
struct CallEnding {
  grpc::Status status;
  std::vector<std::pair<std::string, std::string>> trailers;
};

// Whose call it is; empty where that is not known.
struct CallNames {
  std::string request_id = {};
  std::string service_class = {};
  std::string tenant = {};
  std::string trace_id = {};
};

// What a newcomer gets once the server has begun to shut down.
Refusal DrainingRefusal();

grpc::StatusCode StatusCodeOf(RefusalReason reason);

// The status with its details (google.rpc.Status: ErrorInfo, RequestInfo, BadRequest, QuotaFailure, RetryInfo) and the
// trailer grpc-retry-pushback-ms. Retry times are spread by up to half, so that those refused together do not come back
// together. A class named by the refusal itself goes before that of `names`.
CallEnding RefusedEnding(const Refusal& refusal, const CallNames& names);

// Adds the trailer berth-usage-bin.
void AttachUsage(const Usage& usage, CallEnding* ending);

}  // namespace berth
