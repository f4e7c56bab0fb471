// Certificates and keys in PEM files, looked at before a server relies on them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace berth {

// What TLS is served with. Contents, not paths.
struct TlsPem {
  std::string certificate;  // the server's own, then those of the authorities between it and the root
  std::string key;
  std::string client_ca;  // empty = clients are asked for no certificate

  bool operator==(const TlsPem&) const = default;
};

struct CertificateFacts {
  std::string subject;  // as RFC 2253 writes it
  std::chrono::system_clock::time_point not_before;
  std::chrono::system_clock::time_point not_after;
};

// The certificates of a PEM file, at least one. Errors say what is wrong with the file, without its name.
absl::StatusOr<std::vector<CertificateFacts>> ReadCertificates(std::string_view pem);

// OK where `key_pem` is the unencrypted private key of the first certificate.
absl::Status CheckKeyOf(std::string_view certificate_pem, std::string_view key_pem);

// "2026-11-29T23:00:00Z".
std::string FormatUtc(std::chrono::system_clock::time_point time);

}  // namespace berth
