// The operators' port, spoken to in plain bytes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/ops_server.h"

namespace berth::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Connection {
 public:
  explicit Connection(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    WaitAtMost({.tv_sec = 60, .tv_usec = 0});  // no answer within this time is no answer
    sockaddr generic{};
    static_assert(sizeof(generic) == sizeof(to));
    std::memcpy(&generic, &to, sizeof(to));
    connected_ = connect(fd_, &generic, sizeof(generic)) == 0;
  }
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() {
    if (fd_ >= 0) close(fd_);
  }
  bool connected() const { return connected_; }
  void Send(const std::string& bytes) const {
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  void WaitAtMost(timeval patience) const { setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)); }
  // Sends a byte, waits, sends a byte, until the server has had enough.
  void TrickleUntilClosed() const {
    WaitAtMost({.tv_sec = 0, .tv_usec = 20'000});
    char byte = 'G';
    while (send(fd_, &byte, 1, MSG_NOSIGNAL) == 1) {
      if (recv(fd_, &byte, 1, 0) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return;
    }
  }
  // All that comes until the server closes.
  std::string ReadAll() const {
    std::string all;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) all.append(buffer, static_cast<std::size_t>(n));
    return all;
  }

 private:
  int fd_;
  bool connected_ = false;
};

class OpsServerTest : public testing::Test {
 protected:
  void Start(const OpsOptions& options) {
    absl::StatusOr<std::unique_ptr<OpsServer>> server = OpsServer::Start(
        options, [this] { return page_; },
        [this] { return HealthState{.live = live_, .ready = ready_, .why = "loading the model"}; });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Start() { Start({.listen_address = "127.0.0.1:0"}); }
  std::string Ask(const std::string& request_line) {
    const Connection connection(server_->address());
    connection.Send(request_line + " HTTP/1.1\r\nHost: berth\r\n\r\n");
    return connection.ReadAll();
  }

  std::string page_ = "up 1\n";
  std::atomic<bool> live_ = true;
  std::atomic<bool> ready_ = true;
  std::unique_ptr<OpsServer> server_;
};

std::string BodyOf(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

TEST_F(OpsServerTest, ServesThePageInPrometheusFormat) {
  Start();
  const std::string answer = Ask("GET /metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_EQ(BodyOf(answer), "up 1\n");
  EXPECT_EQ(BodyOf(Ask("GET /metrics?x=1")), "up 1\n");
}

TEST_F(OpsServerTest, HeadHasTheLengthAndNoBody) {
  Start();
  const std::string answer = Ask("HEAD /metrics");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_EQ(BodyOf(answer), "");
}

TEST_F(OpsServerTest, ProbesSayWhyNot) {
  Start();
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  ready_ = false;
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_EQ(BodyOf(Ask("GET /readyz")), "loading the model\n");
  EXPECT_THAT(Ask("GET /livez"), StartsWith("HTTP/1.1 200 OK\r\n"));
  live_ = false;
  EXPECT_THAT(Ask("GET /livez"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST_F(OpsServerTest, WhatIsDeadIsNotReady) {
  Start();
  live_ = false;
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST_F(OpsServerTest, OtherPathsAndMethodsAreRefused) {
  Start();
  for (const std::string path : {"/", "/metrics/", "/metricsx", "/../etc/passwd", "/%2e%2e/", "/index.html"}) {
    EXPECT_THAT(Ask("GET " + path), StartsWith("HTTP/1.1 404 Not Found\r\n")) << path;
  }
  const std::string answer = Ask("POST /metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(Ask("DELETE /livez"), StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
}

TEST_F(OpsServerTest, NonsenseIsAnsweredOrDroppedAndServingGoesOn) {
  Start({.listen_address = "127.0.0.1:0", .client_timeout = std::chrono::milliseconds(300)});
  for (const std::string& nonsense :
       {std::string("nonsense\r\n\r\n"), std::string("GET /metrics HTTP/9.9\r\n\r\n"),
        std::string("\0\0\0\0\r\n\r\n", 8), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n"}) {
    const Connection connection(server_->address());
    connection.Send(nonsense);
    EXPECT_THAT(connection.ReadAll(), Not(HasSubstr(" 200 "))) << nonsense.substr(0, 40);
  }
  EXPECT_EQ(BodyOf(Ask("GET /metrics")), "up 1\n");
}

TEST_F(OpsServerTest, MuteAndSlowClientsAreDroppedAndTheOthersServed) {
  page_ = std::string(32 << 20, 'x');  // beyond what socket buffers hold
  Start({.listen_address = "127.0.0.1:0", .max_connections = 4, .client_timeout = std::chrono::milliseconds(300)});
  std::vector<Connection> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back(server_->address());  // says nothing
    others.emplace_back(server_->address());  // begins to speak
    others.back().Send("GET /metr");
    others.emplace_back(server_->address());  // never reads
    others.back().Send("GET /metrics HTTP/1.1\r\nHost: berth\r\n\r\n");
  }
  EXPECT_THAT(Ask("GET /livez"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(OpsServerTest, AClientThatNeverComesToItsPointIsDroppedHoweverBusy) {
  Start({.listen_address = "127.0.0.1:0", .client_timeout = std::chrono::milliseconds(200)});
  Connection(server_->address()).TrickleUntilClosed();
}

TEST_F(OpsServerTest, OnePeerCannotTakeEveryConnection) {
  Start({.listen_address = "127.0.0.1:0", .max_connections_per_peer = 2});
  const Connection first(server_->address());
  const Connection second(server_->address());
  const Connection third(server_->address());
  EXPECT_EQ(third.ReadAll(), "");
  first.Send("GET /livez HTTP/1.1\r\nHost: berth\r\n\r\n");
  EXPECT_EQ(BodyOf(first.ReadAll()), "ok\n");
}

TEST_F(OpsServerTest, ManyAtOnceAreAllAnswered) {
  Start({.listen_address = "127.0.0.1:0", .max_connections = 2, .max_connections_per_peer = 200});
  std::vector<Connection> connections;
  for (int i = 0; i < 100; ++i) {
    connections.emplace_back(server_->address());
    ASSERT_TRUE(connections.back().connected());
    connections.back().Send("GET /livez HTTP/1.1\r\nHost: berth\r\n\r\n");
  }
  for (const Connection& connection : connections) EXPECT_EQ(BodyOf(connection.ReadAll()), "ok\n");
}

TEST_F(OpsServerTest, StopsWhileAClientIsConnected) {
  Start();
  const Connection connection(server_->address());
  server_.reset();
  EXPECT_EQ(connection.ReadAll(), "");
}

TEST_F(OpsServerTest, APortInUseIsOneClearLine) {
  Start();
  const auto second = OpsServer::Start(
      {.listen_address = server_->address()}, [] { return ""; }, [] { return HealthState(); });
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
  EXPECT_THAT(std::string(second.status().message()), Not(HasSubstr("\n")));
}

TEST_F(OpsServerTest, ABadAddressIsRefusedByName) {
  for (const std::string address :
       {"", "9090", ":9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "berth.example:9090",
        "unix:/ops.sock", "127.0.0.1:90,0.0.0.0:91", "127.0.0.1:443s", "[::1:9090", "300.1.1.1:0"}) {
    const auto server = OpsServer::Start(
        {.listen_address = address}, [] { return ""; }, [] { return HealthState(); });
    ASSERT_FALSE(server.ok()) << address;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("'" + address + "'"));
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("server.ops"));
  }
}

TEST_F(OpsServerTest, ListensOnLocalhostAndOnIpv6) {
  Start({.listen_address = "localhost:0"});
  EXPECT_THAT(server_->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT(server_->address(), Not(testing::EndsWith(":0")));
  const auto v6 = OpsServer::Start(
      {.listen_address = "[::1]:0"}, [] { return ""; }, [] { return HealthState(); });
  if (!v6.ok()) GTEST_SKIP() << "no IPv6 here: " << v6.status();
  EXPECT_THAT((*v6)->address(), StartsWith("[::1]:"));
}

}  // namespace
}  // namespace berth::test
