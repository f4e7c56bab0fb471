#include "cli/connection_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "cli/flags.h"
#include "cli/input.h"
#include "cli/output.h"
#include "config/server_config.h"

namespace berth::cli {
namespace {

// "HOST:PORT" or "unix:PATH"; whether somebody listens there is the call's to find out.
bool LooksLikeAddress(const std::string& address) {
  if (address.starts_with("unix:")) return address.size() > 5;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  int port = 0;
  const char* end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
  return error == std::errc() && stop == end && port > 0 && port < 65536;
}

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

// What gRPC takes for the key of a text. Keys that begin with "grpc-" are gRPC's own, and a "-bin" one holds bytes.
bool IsMetadataKey(std::string_view key) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !key.empty() && std::ranges::all_of(key, allowed) && !key.starts_with("grpc-") && !key.ends_with("-bin");
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

absl::Status AddApiKey(const std::string& text, const std::string& source, ConnectionOptions* options) {
  const std::string_view key = Trimmed(text);
  if (key.empty() || !IsPrintable(key) || key.find(' ') != std::string_view::npos) {
    return absl::InvalidArgumentError(source + " holds no API key: one line of printable characters without blanks");
  }
  options->metadata.emplace_back("authorization", "Bearer " + std::string(key));
  return absl::OkStatus();
}

absl::Status AddHeader(const std::string& header, ConnectionOptions* options) {
  const std::size_t equals = header.find('=');
  std::string key = header.substr(0, equals);
  std::ranges::transform(key, key.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (equals == std::string::npos || !IsMetadataKey(key) || !IsPrintable(header.substr(equals + 1))) {
    return absl::InvalidArgumentError(
        "--header must be KEY=VALUE with a key of a-z, 0-9, -, _ and . and a printable value, not " + Quoted(header));
  }
  options->metadata.emplace_back(std::move(key), header.substr(equals + 1));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  if (path.empty()) return std::string();
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (text.ok() && text->find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(std::string(flag) + ": " + path + " is no PEM file");
  }
  return text;
}

absl::Status AddTls(const ConnectionFlags& flags, ConnectionOptions* options) {
  if (flags.certificate.empty() != flags.key.empty()) {
    return absl::InvalidArgumentError("--cert and --key go together: give both, or neither");
  }
  if (!flags.tls && flags.tls_ca.empty() && flags.certificate.empty()) return absl::OkStatus();
  ClientTls& tls = options->tls.emplace();
  struct Part {
    const char* flag;
    const std::string& path;
    std::string* text;
  };
  for (const Part& part : {Part{"--tls-ca", flags.tls_ca, &tls.roots},
                           Part{"--cert", flags.certificate, &tls.certificate}, Part{"--key", flags.key, &tls.key}}) {
    absl::StatusOr<std::string> text = ReadPem(part.flag, part.path);
    if (!text.ok()) return text.status();
    *part.text = *std::move(text);
  }
  return absl::OkStatus();
}

void AddCredentialFlags(CLI::App* app, ConnectionFlags* flags) {
  AddText(app, "--api-key-file", &flags->api_key_file, "FILE",
          std::string("file with the API key; default: the key in the environment variable ") + kApiKeyVariable)
      ->group("Server");
  app->add_flag("--tls", flags->tls, "speak TLS, trusting the system's certificate authorities")->group("Server");
  AddText(app, "--tls-ca", &flags->tls_ca, "FILE", "speak TLS, trusting these certificates (PEM)")->group("Server");
  AddText(app, "--cert", &flags->certificate, "FILE",
          "the client's own certificate (PEM), where the server asks for one")
      ->group("Server");
  AddText(app, "--key", &flags->key, "FILE", "and its private key (PEM)")->group("Server");
  AddTexts(app, "--header", &flags->headers, "KEY=VALUE",
           "metadata to send, such as x-berth-class=batch; may be repeated")
      ->group("Server");
}

}  // namespace

void AddConnectionFlags(CLI::App* app, ConnectionFlags* flags) {
  flags->server = ServerSettings().grpc;
  AddText(app, "--server", &flags->server, "HOST:PORT", "the server's gRPC address; default " + flags->server)
      ->group("Server");
  AddCredentialFlags(app, flags);
}

void AddAdminFlags(CLI::App* app, ConnectionFlags* flags, const std::string& name) {
  const std::string usual = ServerSettings().admin;
  flags->server_flag = name;
  if (name == "--admin") flags->server = usual;
  AddText(app, name, &flags->server, "unix:PATH|HOST:PORT",
          "the server's server.admin" + (name == "--admin" ? "; default " + usual : ", such as " + usual))
      ->group("Server");
  AddCredentialFlags(app, flags);
}

absl::StatusOr<ConnectionOptions> MakeConnection(const ConnectionFlags& flags) {
  ConnectionOptions options;
  if (!LooksLikeAddress(flags.server)) {
    return absl::InvalidArgumentError(flags.server_flag + " must be HOST:PORT or unix:PATH, not " +
                                      Quoted(flags.server));
  }
  options.address = flags.server;
  if (!flags.api_key_file.empty()) {
    const absl::StatusOr<std::string> key = ReadTextFile(flags.api_key_file);
    if (!key.ok()) return key.status();
    if (absl::Status added = AddApiKey(*key, flags.api_key_file, &options); !added.ok()) return added;
  } else if (const char* key = std::getenv(kApiKeyVariable); key != nullptr) {
    if (absl::Status added = AddApiKey(key, kApiKeyVariable, &options); !added.ok()) return added;
  }
  for (const std::string& header : flags.headers) {
    if (absl::Status added = AddHeader(header, &options); !added.ok()) return added;
  }
  if (absl::Status added = AddTls(flags, &options); !added.ok()) return added;
  return options;
}

}  // namespace berth::cli
