#include "frontend/admin_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "frontend/admin_service.h"
#include "frontend/call_metadata.h"
#include "frontend/listen_address.h"
#include "frontend/tls_credentials.h"

namespace berth {
namespace {

constexpr char kUnixPrefix[] = "unix:";
constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;
// A policy file that is to be judged, and some.
constexpr int kMaxMessageBytes = 4 * 1024 * 1024;
constexpr auto kCloseTime = std::chrono::milliseconds(200);

Refusal AdminRequired() {
  Refusal refusal;
  refusal.reason = RefusalReason::kAdminRequired;
  refusal.message =
      "this takes an admin's credential: a client certificate of server.admin_subjects, a key marked admin, or the "
      "unix "
      "socket of server.admin";
  return refusal;
}

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;

  bool operator==(const FileId&) const = default;
};

std::optional<FileId> IdOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileId{info.st_dev, info.st_ino};
}

class AdminServerImpl final : public AdminServer {
 public:
  AdminServerImpl(const AdminOptions& options, Engine* engine, const Clock* clock, const HealthMonitor* health,
                  AdminHooks hooks)
      : options_(options),
        engine_(engine),
        unix_path_(options.listen_address.starts_with(kUnixPrefix)
                       ? options.listen_address.substr(sizeof(kUnixPrefix) - 1)
                       : std::string()),
        service_(options, engine, clock, health, std::move(hooks),
                 [this](const grpc::CallbackServerContext& context) { return WhyNot(context); }) {}

  ~AdminServerImpl() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kCloseTime);
    server_.reset();
    if (socket_.has_value() && IdOf(unix_path_) == socket_) ::unlink(unix_path_.c_str());
  }

  absl::Status Serve() {
    if (absl::Status listen = CheckListenAddress(options_.listen_address); !listen.ok()) return listen;
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    int port = 0;
    grpc::ServerBuilder builder;
    tls_ = AddListeningPort(options_.listen_address, unix_path_.empty() ? options_.tls : TlsPem(), &port, &builder);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    // The socket's file must at no moment be open to others: gRPC makes it with what the mask leaves.
    const mode_t mask = ::umask(~kOwnerOnly & 0777);
    server_ = builder.BuildAndStart();
    ::umask(mask);
    if (server_ == nullptr) return BindFault(options_.listen_address);
    if (!unix_path_.empty()) socket_ = IdOf(unix_path_);
    address_ = WithPort(options_.listen_address, port);
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  void SetTls(const TlsPem& tls) override {
    if (tls_ != nullptr) tls_->Set(tls);
  }

 private:
  // Who can open the socket's file is its owner, or root.
  std::optional<Refusal> WhyNot(const grpc::CallbackServerContext& context) const {
    if (!unix_path_.empty()) return std::nullopt;
    const CallHeaders headers = HeadersOf(context);
    std::variant<Caller, Refusal> caller = options_.callers->Authenticate(headers.credentials, *engine_->policy());
    if (const auto* known = std::get_if<Caller>(&caller); known != nullptr && known->admin) return std::nullopt;
    return AdminRequired();
  }

  const AdminOptions options_;
  Engine* const engine_;
  const std::string unix_path_;  // empty = TCP
  AdminService service_;
  std::shared_ptr<TlsCredentials> tls_;  // null = no TLS
  std::unique_ptr<grpc::Server> server_;
  std::optional<FileId> socket_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const AdminOptions& options, Engine* engine,
                                                                const Clock* clock, const HealthMonitor* health,
                                                                AdminHooks hooks) {
  auto server = std::make_unique<AdminServerImpl>(options, engine, clock, health, std::move(hooks));
  if (absl::Status status = server->Serve(); !status.ok()) return status;
  return std::unique_ptr<AdminServer>(std::move(server));
}

}  // namespace berth
