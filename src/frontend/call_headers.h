// What a call's metadata may say beside its message. docs/security.md has the table for users.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "berth/admission.h"
#include "frontend/identity.h"

namespace berth {

// Views into the metadata, which must outlive it. Empty = not there.
struct CallHeaders {
  Credentials credentials;
  // By the order in which they count: x-berth-tenant, then the gateways' fairness ids.
  std::array<TenantClaim, 3> tenants;
  std::string_view service_class;  // x-berth-class
  std::string_view objective;      // the first of the gateways' objectives
  std::string trace_id;            // of traceparent: 32 hexadecimal digits; empty where that is malformed
  bool is_retry = false;           // grpc-previous-rpc-attempts ≥ 1: what it asks for was asked before
  std::optional<Refusal> fault;    // INVALID_REQUEST naming the first header that has a meaning and is malformed
};

using MetadataEntry = std::pair<std::string_view, std::string_view>;

// Keys in lower case, as HTTP/2 has them. Unknown headers are nobody's business.
CallHeaders ReadCallHeaders(std::span<const MetadataEntry> metadata);

// The trace id of a W3C traceparent (https://www.w3.org/TR/trace-context/, section 3.2), of any version; empty where it
// is malformed or all zeros, which that page says to ignore.
std::string_view TraceIdOf(std::string_view traceparent);

}  // namespace berth
