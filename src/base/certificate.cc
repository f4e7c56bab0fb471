#include "base/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <utility>

namespace berth {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using BioPtr = std::unique_ptr<BIO, Free>;
using X509Ptr = std::unique_ptr<X509, Free>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free>;

BioPtr Reader(std::string_view text) { return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// Without it OpenSSL would ask for the password on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

std::chrono::system_clock::time_point TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

std::string SubjectOf(X509* certificate) {
  const BioPtr text(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(text.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

X509Ptr NextCertificate(BIO* reader) { return X509Ptr(PEM_read_bio_X509(reader, nullptr, NoPassword, nullptr)); }

}  // namespace

absl::StatusOr<std::vector<CertificateFacts>> ReadCertificates(std::string_view pem) {
  std::vector<CertificateFacts> all;
  const BioPtr reader = Reader(pem);
  ERR_clear_error();
  while (const X509Ptr certificate = NextCertificate(reader.get())) {
    all.push_back({SubjectOf(certificate.get()), TimeOf(X509_get0_notBefore(certificate.get())),
                   TimeOf(X509_get0_notAfter(certificate.get()))});
  }
  // At the end of the file OpenSSL finds no further beginning; anything else is damage.
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const bool at_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (all.empty() && at_end) return absl::InvalidArgumentError("it holds no certificate in PEM (BEGIN CERTIFICATE)");
  if (!at_end) return absl::InvalidArgumentError("it holds a certificate that is damaged");
  return all;
}

absl::Status CheckKeyOf(std::string_view certificate_pem, std::string_view key_pem) {
  const BioPtr certificates = Reader(certificate_pem);
  const BioPtr keys = Reader(key_pem);
  const X509Ptr certificate = NextCertificate(certificates.get());
  const KeyPtr key(PEM_read_bio_PrivateKey(keys.get(), nullptr, NoPassword, nullptr));
  const bool matches = certificate && key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!key) {
    return absl::InvalidArgumentError(key_pem.find("ENCRYPTED") != std::string_view::npos
                                          ? "it is encrypted; give a key without a password"
                                          : "it holds no private key in PEM (BEGIN PRIVATE KEY)");
  }
  if (!matches)
    return absl::InvalidArgumentError("it is not the key of the certificate; give the two that belong together");
  return absl::OkStatus();
}

std::string FormatUtc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts));
}

}  // namespace berth
