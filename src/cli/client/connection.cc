#include "cli/client/connection.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "cli/client/call_status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace berth {
namespace {

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const std::optional<ClientTls>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls->roots;
  options.pem_cert_chain = tls->certificate;
  options.pem_private_key = tls->key;
  return grpc::SslCredentials(options);
}

// What fails is told by the call's status, in one line; gRPC's own lines are for those who ask for them.
void KeepGrpcQuiet() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const ConnectionOptions& options) {
  KeepGrpcQuiet();
  grpc::ChannelArguments arguments;
  // The server's bound is on what it is sent; what it sends grows with the log-probabilities asked for.
  arguments.SetMaxReceiveMessageSize(-1);
  // Attempts are counted and told by RetrySchedule's callers; gRPC would take the count out of the metadata.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(options.address, CredentialsOf(options.tls), arguments);
}

// A refused connection is an answer; only silence is waited for.
absl::Status WaitUntilConnected(const ConnectionOptions& options, TimePoint deadline, grpc::Channel* channel) {
  const auto until = ToSystemTime(std::min(deadline, std::chrono::steady_clock::now() + options.connect_timeout));
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return absl::UnavailableError(
          options.tls
              ? absl::StrCat("no TLS connection to ", options.address,
                             ": nothing listens there, it speaks plain text, or --tls-ca does not know its certificate")
              : absl::StrCat("nothing listens at ", options.address, ": ", options.remedy));
    }
    if (!channel->WaitForStateChange(state, until)) {
      return absl::UnavailableError("no answer from " + options.address + " in time");
    }
    state = channel->GetState(true);
  }
  return absl::OkStatus();
}

absl::Status CheckServing(const ConnectionOptions& options, const std::string& service, Duration timeout,
                          bool* serving) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(options);
  if (absl::Status connected = WaitUntilConnected(options, deadline, channel.get()); !connected.ok()) return connected;
  grpc::ClientContext context;
  context.set_deadline(ToSystemTime(deadline));
  for (const auto& [key, value] : options.metadata) context.AddMetadata(key, value);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return absl::NotFoundError("the server has no service \"" + service +
                               "\": ask for readiness, liveness or berth.class.NAME");
  }
  *serving = response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  return ToStatus(status);
}

}  // namespace berth
