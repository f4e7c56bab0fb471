// The policy file as settings.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "config/diagnostics.h"
#include "config/server_config.h"

namespace berth {

inline constexpr std::size_t kMaxClasses = 64;
inline constexpr std::size_t kMaxTenants = 10'000;

// By path: the SHA-256 of the content, or why there is none.
using FileDigests = std::map<std::string, std::string>;

struct PolicyFile {
  ServerConfig config;
  std::string sha256;  // of the file's content; empty where it could not be read
  FileDigests files;   // what it was made of: the policy file, its key files and those of TLS
};

// Takes the text of a policy file in; everything that is wrong with it is told to `diagnostics`, and the settings are
// good only where that holds no errors. Sections that the text lacks keep their defaults; a list of classes or of
// tenants replaces the default one as a whole, and each class or tenant in it starts from ClassSettings or
// TenantSettings. A tenant "default" is added where there is none.
ServerConfig ParsePolicy(std::string_view text, Diagnostics* diagnostics);

// ParsePolicy of a file, with what only a file can have: relative paths in it count from its folder, and the files it
// names, of API keys and of TLS, are read; one that cannot be read is an error or, where only the policy is asked
// about, a warning. A certificate and a key that are read must belong together; one that is out of date is a warning.
PolicyFile ReadPolicyFile(const std::string& path, Severity absent_file, Diagnostics* diagnostics);

// As ReadPolicyFile, of a text that stands for what the file `path` holds.
PolicyFile ReadPolicyText(std::string_view text, const std::string& path, Severity absent_file,
                          Diagnostics* diagnostics);

// A regular file of at most kMaxPolicyBytes; errors say what is wrong with it, without its name.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// For FileDigests.
std::string DigestOf(const absl::StatusOr<std::string>& content);

}  // namespace berth
