// What a call of gRPC shows beside its message.
#pragma once

#include <grpcpp/grpcpp.h>

#include "frontend/call_headers.h"

namespace berth {

// Its metadata, and the names of the client certificate that TLS verified. The views live as long as the context.
CallHeaders HeadersOf(const grpc::CallbackServerContext& context);

}  // namespace berth
