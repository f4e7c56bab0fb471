#include "frontend/rpc_methods.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>

#include "base/check.h"
#include "berth/v1/admin.pb.h"
#include "berth/v1/inference.pb.h"

namespace berth {

std::vector<std::string> RpcMethodNames() {
  std::vector<std::string> names;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GenerateRequest::descriptor()->file(), v1::GetStatusRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        names.push_back(service->full_name() + "/" + service->method(m)->name());
      }
    }
  }
  return names;
}

RpcMethod RpcMethodOf(std::string_view name) {
  static const std::vector<std::string> names = RpcMethodNames();
  const auto found = std::find(names.begin(), names.end(), name);
  BERTH_CHECK_MSG(found != names.end(), std::string(name));
  return static_cast<RpcMethod>(found - names.begin());
}

}  // namespace berth
