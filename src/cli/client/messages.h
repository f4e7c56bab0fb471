// Between the project's own types and the API's messages, as the client sees them.
#pragma once

#include <functional>
#include <string>

#include "berth/event.h"
#include "berth/request.h"
#include "berth/v1/inference.pb.h"

namespace berth {

// Without model, class and tenant. A max_output_tokens that is a default is left out.
v1::GenerateRequest ToProto(const GenerateSpec& spec);

// Hands over what the message tells, event by event.
void Dispatch(const v1::GenerateStreamResponse& response, const std::function<void(const StreamEvent&)>& on_event);

}  // namespace berth
