// Flags that say where a server is and who is calling: the same for every command that talks to one.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "cli/client/connection.h"

namespace berth::cli {

struct ConnectionFlags {
  std::string server_flag = "--server";  // what the address's flag is called
  std::string server;
  std::string api_key_file;  // empty = the key of the environment, if there is one
  bool tls = false;
  std::string tls_ca;  // files
  std::string certificate;
  std::string key;
  std::vector<std::string> headers;  // "key=value"
};

// The environment variable that holds an API key.
inline constexpr char kApiKeyVariable[] = "BERTH_API_KEY";

// --server, --api-key-file, --tls, --tls-ca, --cert, --key, --header.
void AddConnectionFlags(CLI::App* app, ConnectionFlags* flags);

// The same for commands that talk to server.admin; the address is called `name` and has a default where that is
// --admin.
void AddAdminFlags(CLI::App* app, ConnectionFlags* flags, const std::string& name = "--admin");

// Reads the files that the flags name, and the environment. Errors name the flag and what is wrong with it.
absl::StatusOr<ConnectionOptions> MakeConnection(const ConnectionFlags& flags);

}  // namespace berth::cli
