// What berth.v1.Admin tells and does that is not the engine's: whoever wires the server fills it in.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "berth/units.h"
#include "berth/v1/admin.pb.h"

namespace berth {

// All thread-safe, callable for as long as the server is there. An error is the call's status, code by code.
struct AdminHooks {
  // As the method of the same name. They may take a while: they run on a thread of the admin server's own.
  std::function<absl::Status(const v1::ReloadPolicyRequest& request, v1::ReloadPolicyResponse* response)> reload;
  std::function<absl::Status(const v1::GetUsageRequest& request, v1::GetUsageResponse* response)> usage;

  // Stops the class until the next reload. Not found: no such class.
  std::function<absl::Status(const std::string& service_class)> drain_class;
  // Begins to end the server, and returns.
  std::function<void()> drain;

  // Of the policy file in force; empty where there is none.
  std::function<std::string()> policy_sha256;
  // How the class kept what it promises, added to its status.
  std::function<void(ClassId service_class, v1::ClassStatus* status)> add_slos;

  // Whom a tenant's name means; nothing where nobody is called so. Empty = the default tenant.
  std::function<std::optional<TenantId>(const std::string& name)> find_tenant;
  std::function<std::string(TenantId tenant)> tenant_name;
};

}  // namespace berth
