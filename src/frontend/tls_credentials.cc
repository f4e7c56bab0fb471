#include "frontend/tls_credentials.h"

#include <grpc/grpc.h>

#include <utility>

#include "base/check.h"

namespace berth {

TlsCredentials::TlsCredentials(TlsPem pem)
    : pem_(std::move(pem)),
      credentials_(grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              pem_.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                     : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
              &TlsCredentials::Fetch, this))) {
  BERTH_CHECK(credentials_ != nullptr);
}

TlsCredentials::~TlsCredentials() { grpc_server_credentials_release(credentials_); }

void TlsCredentials::Set(TlsPem pem) {
  const std::lock_guard lock(mutex_);
  if (pem == pem_) return;
  pem_ = std::move(pem);
  fresh_ = true;
}

void TlsCredentials::SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) {
  BERTH_CHECK_MSG(false, "callers are told from their metadata in frontend/identity.h");
}

int TlsCredentials::AddPortToServer(const std::string& address, grpc_server* server) {
  return grpc_server_add_http2_port(server, address.c_str(), credentials_);
}

grpc_ssl_certificate_config_reload_status TlsCredentials::Fetch(void* self,
                                                                grpc_ssl_server_certificate_config** config) {
  auto* const tls = static_cast<TlsCredentials*>(self);
  const std::lock_guard lock(tls->mutex_);
  if (!std::exchange(tls->fresh_, false)) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {tls->pem_.key.c_str(), tls->pem_.certificate.c_str()};
  // gRPC 1.51 wants roots also where it asks for no client certificate, and uses them for nothing then.
  const std::string& roots = tls->pem_.client_ca.empty() ? tls->pem_.certificate : tls->pem_.client_ca;
  *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
  return *config != nullptr ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
}

std::shared_ptr<TlsCredentials> AddListeningPort(const std::string& address, const TlsPem& pem, int* port,
                                                 grpc::ServerBuilder* builder) {
  // A second server on the port is a mistake that has to be seen, not one that gets half of the connections.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  if (pem.certificate.empty()) {
    builder->AddListeningPort(address, grpc::InsecureServerCredentials(), port);
    return nullptr;
  }
  auto tls = std::make_shared<TlsCredentials>(pem);
  builder->AddListeningPort(address, tls, port);
  return tls;
}

}  // namespace berth
