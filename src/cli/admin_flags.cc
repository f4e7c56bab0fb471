#include "cli/admin_flags.h"

#include "cli/address.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "config/server_config.h"

namespace berth::cli {
namespace {

// The first word of the file's first line, as `berth` and others write keys.
absl::StatusOr<std::string> ReadKey(const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return text;
  const std::size_t begin = text->find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return absl::InvalidArgumentError(path + " is empty: it should hold an API key");
  return text->substr(begin, text->find_first_of(" \t\r\n", begin) - begin);
}

}  // namespace

void AddAdminFlags(CLI::App* app, AdminFlags* flags, const std::string& name) {
  const std::string fallback = ServerSettings().admin;
  if (name == "--admin") flags->address = fallback;
  AddText(app, name, &flags->address, "unix:PATH|HOST:PORT",
          "the server's server.admin" + (name == "--admin" ? "; default " + fallback : ", such as " + fallback))
      ->group("Server");
  AddText(app, "--api-key-file", &flags->api_key_file, "FILE", "over TCP: a file with a key that is marked admin")
      ->group("Server");
  AddText(app, "--tls-ca", &flags->tls_ca, "FILE", "over TLS: PEM certificates to trust the server by")
      ->group("Server");
  AddText(app, "--tls-cert", &flags->tls_certificate, "FILE", "over mTLS: this client's PEM certificate")
      ->group("Server");
  AddText(app, "--tls-key", &flags->tls_key, "FILE", "the certificate's PEM key")->group("Server");
}

absl::StatusOr<AdminClientOptions> MakeAdminClientOptions(const AdminFlags& flags) {
  if (!LooksLikeAddress(flags.address)) {
    return absl::InvalidArgumentError("the server's address must be HOST:PORT or unix:PATH, not \"" + flags.address +
                                      "\"");
  }
  if (flags.tls_certificate.empty() != flags.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  AdminClientOptions options;
  options.address = flags.address;
  const std::pair<const std::string*, std::string*> files[] = {
      {&flags.tls_ca, &options.root_certificates},
      {&flags.tls_certificate, &options.certificate},
      {&flags.tls_key, &options.private_key},
  };
  for (const auto& [path, text] : files) {
    if (path->empty()) continue;
    absl::StatusOr<std::string> content = ReadTextFile(*path);
    if (!content.ok()) return content.status();
    *text = *std::move(content);
  }
  if (!flags.api_key_file.empty()) {
    absl::StatusOr<std::string> key = ReadKey(flags.api_key_file);
    if (!key.ok()) return key.status();
    options.api_key = *std::move(key);
  }
  return options;
}

Outcome AdminFault(const absl::Status& status) {
  const std::string message(status.message());
  return status.code() == absl::StatusCode::kInvalidArgument ? UsageError(message) : Fault(message);
}

}  // namespace berth::cli
