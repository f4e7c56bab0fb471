#include "frontend/call_metadata.h"

#include <grpc/grpc_security_constants.h>

#include <memory>
#include <string_view>
#include <vector>

namespace berth {
namespace {

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

CallHeaders HeadersOf(const grpc::CallbackServerContext& context) {
  std::vector<MetadataEntry> metadata;
  metadata.reserve(context.client_metadata().size());
  for (const auto& [key, value] : context.client_metadata()) metadata.emplace_back(View(key), View(value));
  CallHeaders headers = ReadCallHeaders(metadata);
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr) return headers;
  for (const char* const property : {GRPC_X509_SUBJECT_PROPERTY_NAME, GRPC_PEER_URI_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : peer->FindPropertyValues(property)) {
      headers.credentials.subjects.push_back(View(value));
    }
  }
  return headers;
}

}  // namespace berth
