#include "frontend/call_headers.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace berth {
namespace {

constexpr std::size_t kTraceparentBytes = 55;  // of version 00: "00-" trace id "-" parent id "-" flags
constexpr std::size_t kTraceIdBytes = 32;
constexpr std::int64_t kMostSloMs = 24 * 3600 * 1000;

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

// Milliseconds above 0 and at most a day: digits, and perhaps a fraction.
bool IsSloMs(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view fraction = point == std::string_view::npos ? "0" : text.substr(point + 1);
  if (whole.empty() || whole.size() > 8 || fraction.empty() || fraction.size() > 9) return false;
  if (whole.find_first_not_of(kDigits) != std::string_view::npos) return false;
  if (fraction.find_first_not_of(kDigits) != std::string_view::npos) return false;
  std::int64_t ms = 0;
  for (const char c : whole) ms = 10 * ms + (c - '0');
  return ms < kMostSloMs && !(ms == 0 && IsZero(fraction));
}

class Reader {
 public:
  CallHeaders Run(std::span<const MetadataEntry> metadata) {
    constexpr const char* kTenants[] = {"x-berth-tenant", "x-llm-d-inference-fairness-id",
                                        "x-gateway-inference-fairness-id"};
    constexpr const char* kObjectives[] = {"x-llm-d-inference-objective", "x-gateway-inference-objective"};
    std::array<std::string_view, std::size(kObjectives)> objectives;
    std::string_view traceparent;
    for (std::size_t i = 0; i < std::size(kTenants); ++i) headers_.tenants[i].source = kTenants[i];
    for (const auto& [key, value] : metadata) {
      if (key == "authorization") headers_.credentials.authorization.push_back(value);
      if (key == "x-api-key") headers_.credentials.x_api_key.push_back(value);
      if (key == "x-berth-class") TakeOnce("x-berth-class", value, &headers_.service_class);
      if (key == "traceparent") traceparent = value;
      if (key == "grpc-previous-rpc-attempts") headers_.is_retry = !IsZero(value);
      for (std::size_t i = 0; i < std::size(kTenants); ++i) {
        if (key == kTenants[i]) TakeOnce(kTenants[i], value, &headers_.tenants[i].name);
      }
      for (std::size_t i = 0; i < std::size(kObjectives); ++i) {
        if (key == kObjectives[i]) TakeOnce(kObjectives[i], value, &objectives[i]);
      }
      for (const char* const slo : {"x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-ttft-ms", "x-slo-tpot-ms"}) {
        if (key == slo && !value.empty() && !IsSloMs(value)) {
          Fault(slo, "is no time in milliseconds: it must be a number above 0 and below 86400000");
        }
      }
    }
    headers_.objective = objectives[0].empty() ? objectives[1] : objectives[0];
    headers_.trace_id = TraceIdOf(traceparent);
    return std::move(headers_);
  }

 private:
  void TakeOnce(const char* header, std::string_view value, std::string_view* out) {
    if (!out->empty() && *out != value) return Fault(header, "is there twice with different values: send it once");
    *out = value;
  }

  void Fault(const char* header, const char* what) {
    if (headers_.fault) return;
    headers_.fault.emplace();
    headers_.fault->reason = RefusalReason::kInvalidRequest;
    headers_.fault->message = absl::StrCat(header, " ", what);
    headers_.fault->field = header;
  }

  CallHeaders headers_;
};

}  // namespace

std::string_view TraceIdOf(std::string_view traceparent) {
  if (traceparent.size() < kTraceparentBytes) return {};
  const std::string_view version = traceparent.substr(0, 2);
  const std::string_view trace_id = traceparent.substr(3, kTraceIdBytes);
  const std::string_view parent_id = traceparent.substr(36, 16);
  const std::string_view flags = traceparent.substr(53, 2);
  if (!IsLowerHex(version) || version == "ff" || !IsLowerHex(trace_id) || !IsLowerHex(parent_id)) return {};
  if (!IsLowerHex(flags) || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return {};
  // Later versions may say more behind another dash.
  const bool more = traceparent.size() > kTraceparentBytes;
  if (more && (version == "00" || traceparent[kTraceparentBytes] != '-')) return {};
  return IsZero(trace_id) || IsZero(parent_id) ? std::string_view() : trace_id;
}

CallHeaders ReadCallHeaders(std::span<const MetadataEntry> metadata) { return Reader().Run(metadata); }

}  // namespace berth
