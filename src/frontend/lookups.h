// The calls that only ask: what they answer, without gRPC.
#pragma once

#include <variant>

#include "berth/admission.h"
#include "berth/v1/inference.pb.h"
#include "frontend/server.h"
#include "frontend/submission.h"

namespace berth {

// What does not fit, or would be refused now, is an answer here; what Generate would call malformed is a refusal. Waits
// for the engine's opinion, for a moment at most.
std::variant<v1::EstimateDemandResponse, Refusal> EstimateDemand(const FrontendParts& parts, const ServedModel& model,
                                                                 v1::EstimateDemandRequest&& request,
                                                                 const CallContext& context);
std::variant<v1::TokenizeResponse, Refusal> Tokenize(const FrontendParts& parts, const v1::TokenizeRequest& request);
std::variant<v1::DetokenizeResponse, Refusal> Detokenize(const FrontendParts& parts,
                                                         const v1::DetokenizeRequest& request);
// With the classes that `tenant`, one of the policy in force, may use.
std::variant<v1::GetModelInfoResponse, Refusal> GetModelInfo(const FrontendParts& parts, const FrontendOptions& options,
                                                             TenantId tenant, const v1::GetModelInfoRequest& request);

}  // namespace berth
