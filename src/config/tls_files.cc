#include "config/tls_files.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/certificate.h"

namespace berth {
namespace {

constexpr char kCertificate[] = "server.tls.certificate";
constexpr char kKey[] = "server.tls.key";
constexpr char kClientCa[] = "server.tls.client_ca";

class TlsReader {
 public:
  TlsReader(Severity absent_file, PolicyFile* file, Diagnostics* diagnostics)
      : absent_file_(absent_file), file_(*file), diagnostics_(*diagnostics) {}

  void Run() {
    TlsSettings& tls = file_.config.server.tls;
    Read(kCertificate, tls.certificate, &tls.pem.certificate);
    Read(kKey, tls.key, &tls.pem.key);
    Read(kClientCa, tls.client_ca, &tls.pem.client_ca);
    const bool certificate = Judge(kCertificate, tls.certificate, tls.pem.certificate);
    Judge(kClientCa, tls.client_ca, tls.pem.client_ca);
    if (!certificate || tls.pem.key.empty()) return;
    if (const absl::Status key = CheckKeyOf(tls.pem.certificate, tls.pem.key); !key.ok()) {
      diagnostics_.Error(kKey, absl::StrCat(tls.key, ": ", std::string(key.message())));
    }
  }

 private:
  void Read(const char* key, const std::string& path, std::string* text) {
    if (path.empty()) return;
    absl::StatusOr<std::string> read = ReadConfigFile(path);
    file_.files[path] = DigestOf(read);
    if (read.ok() && read->empty()) read = absl::InvalidArgumentError("the file is empty");
    if (read.ok()) {
      *text = *std::move(read);
    } else {
      diagnostics_.Add(absent_file_, key,
                       absl::StrCat("cannot read ", path, ": ", std::string(read.status().message())));
    }
  }

  // True where there are certificates. Of those of authorities an old one among others does no harm.
  bool Judge(const char* key, const std::string& path, const std::string& pem) {
    if (pem.empty()) return false;
    const absl::StatusOr<std::vector<CertificateFacts>> all = ReadCertificates(pem);
    if (!all.ok()) {
      diagnostics_.Error(key, absl::StrCat(path, ": ", std::string(all.status().message())));
      return false;
    }
    const CertificateFacts& first = all->front();
    const auto now = std::chrono::system_clock::now();
    if (first.not_after < now) {
      diagnostics_.Warning(key, absl::StrCat(path, ": the certificate of ", first.subject, " expired at ",
                                             FormatUtc(first.not_after), "; renew it"));
    } else if (first.not_before > now) {
      diagnostics_.Warning(key, absl::StrCat(path, ": the certificate of ", first.subject, " is valid from ",
                                             FormatUtc(first.not_before), " on; check the clock, or replace it"));
    }
    return true;
  }

  const Severity absent_file_;
  PolicyFile& file_;
  Diagnostics& diagnostics_;
};

}  // namespace

void ReadTlsFiles(Severity absent_file, PolicyFile* file, Diagnostics* diagnostics) {
  TlsReader(absent_file, file, diagnostics).Run();
}

}  // namespace berth
