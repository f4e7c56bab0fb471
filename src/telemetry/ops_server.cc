#include "telemetry/ops_server.h"

#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "telemetry/exposition.h"
#include "telemetry/listen_socket.h"

namespace berth {
namespace {

// Of a request's head: a probe's has a few hundred bytes.
constexpr std::size_t kConnectionMemoryBytes = 16 * 1024;

struct Answer {
  unsigned status = MHD_HTTP_OK;
  const char* content_type = "text/plain; charset=utf-8";
  const char* allow = nullptr;
  std::string body = {};
};

Answer ProbeAnswer(bool good, const std::string& why) {
  if (good) return {.body = "ok\n"};
  return {.status = MHD_HTTP_SERVICE_UNAVAILABLE, .body = absl::StrCat(why, "\n")};
}

// libmicrohttpd parses and writes; when it does so, and for how long a client may keep it, is decided here. Its own
// time limit counts from a client's last byte, so that one that sends a byte now and then would never meet it.
class MicroOpsServer final : public OpsServer {
 public:
  MicroOpsServer(const OpsOptions& options, std::function<std::string()> metrics_page,
                 std::function<HealthState()> health)
      : options_(options), metrics_page_(std::move(metrics_page)), health_(std::move(health)) {}
  ~MicroOpsServer() override;

  absl::Status Serve();
  std::string address() const override { return address_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Client {
    int fd = -1;
    Time deadline;
  };

  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url, const char* method,
                              const char* version, const char* upload, std::size_t* upload_size, void** context);
  static void OnConnection(void* self, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode what);
  static void OnComplaint(void*, const char*, va_list) {}  // clients that hang up or send nonsense are no news

  Answer AnswerTo(std::string_view method, std::string_view path) const;
  void Run();
  int MillisecondsToWait() const;
  void DropOverdue();

  const OpsOptions options_;
  const std::function<std::string()> metrics_page_;
  const std::function<HealthState()> health_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;
  int events_fd_ = -1;
  int stop_fd_ = -1;
  std::unordered_map<MHD_Connection*, Client> clients_;  // the thread's own
  std::thread thread_;                                   // last: it uses everything above
};

absl::Status MicroOpsServer::Serve() {
  absl::StatusOr<ListenSocket> socket = Listen(options_.listen_address);
  if (!socket.ok()) {
    return absl::Status(socket.status().code(),
                        absl::StrCat("server.ops (metrics and probes): ", std::string(socket.status().message())));
  }
  address_ = socket->address;
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, nullptr, nullptr, OnRequest, this, MHD_OPTION_EXTERNAL_LOGGER, OnComplaint,
      nullptr, MHD_OPTION_LISTEN_SOCKET, socket->fd, MHD_OPTION_CONNECTION_LIMIT,
      static_cast<unsigned>(options_.max_connections), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      static_cast<unsigned>(options_.max_connections_per_peer), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      kConnectionMemoryBytes, MHD_OPTION_NOTIFY_CONNECTION, OnConnection, this, MHD_OPTION_END);
  if (daemon_ == nullptr || stop_fd_ < 0) {
    if (daemon_ == nullptr) close(socket->fd);
    return absl::ResourceExhaustedError("server.ops (metrics and probes): the server cannot be set up");
  }
  const MHD_DaemonInfo* info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);
  BERTH_CHECK(info != nullptr);
  events_fd_ = info->epoll_fd;
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

MicroOpsServer::~MicroOpsServer() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    BERTH_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);  // closes the listening socket as well
  if (stop_fd_ >= 0) close(stop_fd_);
}

void MicroOpsServer::Run() {
  pthread_setname_np(pthread_self(), "berth-ops");
  bool run_again = false;
  for (;;) {
    pollfd fds[] = {{.fd = events_fd_, .events = POLLIN, .revents = 0},
                    {.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    poll(fds, std::size(fds), run_again ? 0 : MillisecondsToWait());
    if (fds[1].revents != 0) return;
    const std::size_t clients = clients_.size();
    MHD_run(daemon_);
    // Where the limit had been reached, the library listens again at the beginning of a run.
    run_again = clients_.size() < clients;
    DropOverdue();
  }
}

int MicroOpsServer::MillisecondsToWait() const {
  constexpr int kForever = -1;
  MHD_UNSIGNED_LONG_LONG library_ms = 0;
  const bool library_waits = MHD_get_timeout(daemon_, &library_ms) == MHD_YES;
  if (clients_.empty() && !library_waits) return kForever;
  const Time now = std::chrono::steady_clock::now();
  Time next = now + std::chrono::hours(1);
  for (const auto& [connection, client] : clients_) next = std::min(next, client.deadline);
  const auto until_deadline = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  const auto ms = std::max<std::int64_t>(0, until_deadline);
  return static_cast<int>(library_waits ? std::min<std::int64_t>(ms, static_cast<std::int64_t>(library_ms)) : ms);
}

void MicroOpsServer::DropOverdue() {
  const Time now = std::chrono::steady_clock::now();
  for (const auto& [connection, client] : clients_) {
    // The library then finds the connection broken, and closes it.
    if (client.deadline <= now) shutdown(client.fd, SHUT_RDWR);
  }
}

void MicroOpsServer::OnConnection(void* self, MHD_Connection* connection, void** /*context*/,
                                  MHD_ConnectionNotificationCode what) {
  auto* server = static_cast<MicroOpsServer*>(self);
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    server->clients_.erase(connection);
    return;
  }
  const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  server->clients_[connection] = {.fd = info->connect_fd,
                                  .deadline = std::chrono::steady_clock::now() + server->options_.client_timeout};
}

Answer MicroOpsServer::AnswerTo(std::string_view method, std::string_view path) const {
  if (path != "/metrics" && path != "/livez" && path != "/readyz") {
    return {.status = MHD_HTTP_NOT_FOUND, .body = "there are /metrics, /livez and /readyz\n"};
  }
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .allow = "GET, HEAD", .body = "GET or HEAD\n"};
  }
  if (path == "/metrics") return {.content_type = kTextPageType, .body = metrics_page_()};
  const HealthState health = health_();
  return ProbeAnswer(health.live && (path == "/livez" || health.ready), health.why);
}

// Called once the head is there; a body is never read.
MHD_Result MicroOpsServer::OnRequest(void* self, MHD_Connection* connection, const char* url, const char* method,
                                     const char* /*version*/, const char* /*upload*/, std::size_t* /*upload_size*/,
                                     void** /*context*/) {
  Answer answer = static_cast<const MicroOpsServer*>(self)->AnswerTo(method, url);
  MHD_Response* response =
      MHD_create_response_from_buffer(answer.body.size(), answer.body.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type);
  MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  if (answer.allow != nullptr) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, answer.allow);
  const MHD_Result queued = MHD_queue_response(connection, answer.status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(const OpsOptions& options,
                                                            std::function<std::string()> metrics_page,
                                                            std::function<HealthState()> health) {
  auto server = std::make_unique<MicroOpsServer>(options, std::move(metrics_page), std::move(health));
  if (absl::Status status = server->Serve(); !status.ok()) return status;
  return std::unique_ptr<OpsServer>(std::move(server));
}

}  // namespace berth
