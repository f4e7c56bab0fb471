// TLS for a listener, with a certificate that may change while it listens. gRPC 1.51 has a provider that watches files,
// but it takes in a key that does not belong to the certificate and then refuses every handshake; so the files are read
// and judged elsewhere, and what is good is set here.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <mutex>
#include <string>

#include "base/certificate.h"

namespace berth {

// For one listening port. Must outlive the server. Thread-safe.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  // Clients need a certificate where `pem` has a client_ca, for good.
  explicit TlsCredentials(TlsPem pem);
  ~TlsCredentials() override;

  // For handshakes from now on; connections that are open stay as they are.
  void Set(TlsPem pem);

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& processor) override;

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override;
  // gRPC asks before each handshake, one at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config);

  std::mutex mutex_;
  TlsPem pem_;         // guarded by mutex_
  bool fresh_ = true;  // gRPC does not have pem_ yet; guarded by mutex_
  grpc_server_credentials* const credentials_;
};

// Has the server listen there, alone, with TLS where `pem` has a certificate. `port` is set once the server has
// started. Gives what takes later certificates, and must outlive the server; null = without TLS.
std::shared_ptr<TlsCredentials> AddListeningPort(const std::string& address, const TlsPem& pem, int* port,
                                                 grpc::ServerBuilder* builder);

}  // namespace berth
