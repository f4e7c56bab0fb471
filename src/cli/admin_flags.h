// How the operators' commands reach a server.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "cli/client/admin_client.h"
#include "cli/outcome.h"

namespace berth::cli {

struct AdminFlags {
  std::string address;
  std::string api_key_file;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
};

// --admin and what TCP takes beside it. `name`: of the flag for the address.
void AddAdminFlags(CLI::App* app, AdminFlags* flags, const std::string& name = "--admin");

// Reads the files that the flags name.
absl::StatusOr<AdminClientOptions> MakeAdminClientOptions(const AdminFlags& flags);

// A call that failed: what the caller said wrong, or a fault of this run.
Outcome AdminFault(const absl::Status& status);

}  // namespace berth::cli
