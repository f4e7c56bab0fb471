// berth.v1.Admin and grpc.health.v1 over real gRPC, with the real engine on a fake backend.
#include "frontend/admin_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "../engine/engine_fixture.h"
#include "base/sha256.h"
#include "berth/v1/admin.grpc.pb.h"
#include "cli/client/admin_client.h"
#include "frontend/health_service.h"
#include "frontend/loading_server.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth::test {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

ConnectionOptions At(const std::string& address) {
  ConnectionOptions options;
  options.address = address;
  return options;
}

class AdminServerTest : public EngineFixture {
 protected:
  AdminServerTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "berth_admin_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~AdminServerTest() override { std::filesystem::remove_all(folder_); }

  void TearDown() override {
    EngineFixture::TearDown();
    admin_.reset();
  }

  std::string Path() const { return folder_ + "/a.sock"; }
  std::string Unix() const { return "unix:" + Path(); }

  // Two tenants by the names of the policy; what else is asked is noted.
  AdminHooks Hooks() {
    AdminHooks hooks;
    hooks.reload = [](const v1::ReloadPolicyRequest& request, v1::ReloadPolicyResponse* response) {
      if (request.expected_hash() == "none") return absl::FailedPreconditionError("there is no file");
      response->set_hash("h" + request.expected_hash());
      response->set_dry_run(request.dry_run());
      return absl::OkStatus();
    };
    hooks.usage = [](const v1::GetUsageRequest& request, v1::GetUsageResponse* response) {
      *response->mutable_from() = request.since();
      return absl::OkStatus();
    };
    hooks.drain_class = [this](const std::string& name) {
      drained_ += "class " + name + ";";
      return name == "only" ? absl::OkStatus() : absl::NotFoundError("no such class");
    };
    hooks.drain = [this] { drained_ += "server;"; };
    hooks.policy_sha256 = [] { return std::string("0123"); };
    hooks.add_slos = [](ClassId, v1::ClassStatus* status) { status->add_slos()->set_met(7); };
    hooks.find_tenant = [](const std::string& name) -> std::optional<TenantId> {
      return name.empty() || name == "default" ? std::optional<TenantId>(0) : std::nullopt;
    };
    hooks.tenant_name = [](TenantId) { return std::string("default"); };
    return hooks;
  }

  absl::Status Serve(const std::string& address) {
    if (engine == nullptr) StartEngine();
    if (callers_ == nullptr) callers_ = std::make_unique<Callers>(Identity(), *engine->policy());
    if (monitor_ == nullptr) monitor_ = std::make_unique<HealthMonitor>(engine.get(), &clock);
    AdminOptions options;
    options.listen_address = address;
    options.callers = callers_.get();
    options.model_name = "tiny";
    options.backend = "fake";
    options.block_tokens = backend->info().pool.block_tokens;
    auto server = AdminServer::Start(options, engine.get(), &clock, monitor_.get(), Hooks());
    if (!server.ok()) return server.status();
    admin_ = *std::move(server);
    client_ = std::make_unique<AdminClient>(At(admin_->address()));
    return absl::OkStatus();
  }

  // One key may administer, the other not.
  static IdentityOptions Identity() {
    IdentityOptions options;
    options.api_keys.push_back({"root", Sha256Hex("admin's key"), "default", /*admin=*/true});
    options.api_keys.push_back({"user", Sha256Hex("user's key"), "default", /*admin=*/false});
    return options;
  }

  std::string folder_;
  std::string drained_;
  std::unique_ptr<Callers> callers_;
  std::unique_ptr<HealthMonitor> monitor_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<AdminClient> client_;
};

TEST_F(AdminServerTest, TheSocketIsItsOwnersAloneAndGoesWithTheServer) {
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  struct stat info {};
  ASSERT_EQ(::stat(Path().c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_TRUE(client_->GetStatus().ok());
  admin_.reset();
  EXPECT_NE(::stat(Path().c_str(), &info), 0);
}

TEST_F(AdminServerTest, ASocketThatNobodyListensToIsReplacedAndOneThatIsServedIsNot) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, Path().c_str(), sizeof(name.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ::close(fd);  // the file stays, as after a crash
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  EXPECT_TRUE(client_->GetStatus().ok());
  const absl::Status second = Serve(Unix());
  EXPECT_NE(second.message().find("another process serves it"), std::string::npos) << second;
  EXPECT_TRUE(client_->GetStatus().ok());
}

TEST_F(AdminServerTest, OverTcpNobodyIsAnAdminWithoutACredential) {
  ASSERT_EQ(Serve("127.0.0.1:0"), absl::OkStatus());
  const std::vector<absl::Status> answers = {
      client_->GetStatus().status(),      client_->Watch(seconds(1), [](const v1::ServerStatus&) { return true; }, {}),
      client_->ListRequests({}).status(), client_->CancelRequest({}),
      client_->ReloadPolicy({}).status(), client_->Drain({}),
      client_->GetUsage({}).status(),
  };
  for (const absl::Status& answer : answers) {
    EXPECT_EQ(answer.code(), absl::StatusCode::kPermissionDenied) << answer;
    EXPECT_NE(answer.message().find("(ADMIN_REQUIRED)"), std::string::npos) << answer;
  }
  EXPECT_EQ(drained_, "");
}

TEST_F(AdminServerTest, OverTcpAKeyThatIsMarkedAdminOpens) {
  ASSERT_EQ(Serve("127.0.0.1:0"), absl::OkStatus());
  for (const auto& [key, opens] : {std::pair("admin's key", true), {"user's key", false}, {"nobody's", false}}) {
    ConnectionOptions options = At(admin_->address());
    options.metadata.emplace_back("authorization", std::string("Bearer ") + key);
    AdminClient client(options);
    const absl::Status status = client.GetStatus().status();
    EXPECT_EQ(status.ok(), opens) << key << ": " << status;
    if (!opens) {
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    }
  }
}

TEST_F(AdminServerTest, TheStatusTellsServerPoolAndClasses) {
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  backend->CloseGate();
  const auto sink = Submit(Request("one", "ten tokens", 5));
  backend->WaitForStepAtGate();
  WaitForLoad([](const Engine::Load& load) { return load.running_requests() == 1; });
  clock.Advance(seconds(90));
  const absl::StatusOr<v1::ServerStatus> status = client_->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), v1::SERVER_STATE_NO_PROGRESS) << "its step has taken 90 s";
  EXPECT_EQ(status->model(), "tiny");
  EXPECT_EQ(status->backend(), "fake");
  EXPECT_EQ(status->uptime().seconds(), 90);
  EXPECT_EQ(status->policy_sha256(), "0123");
  EXPECT_EQ(status->free_blocks() + status->cached_blocks() + status->held_blocks(), 16);
  EXPECT_EQ(status->block_tokens(), 4);
  EXPECT_EQ(status->running_requests(), 1);
  ASSERT_EQ(status->classes_size(), 1);
  EXPECT_EQ(status->classes(0).name(), "only");
  EXPECT_EQ(status->classes(0).running_requests(), 1);
  EXPECT_EQ(status->classes(0).guaranteed_blocks(), 16);
  EXPECT_EQ(status->classes(0).slos(0).met(), 7);
  backend->OpenGate();
  sink->WaitForEnd();
}

TEST_F(AdminServerTest, AWatchTellsNowAndAgainAndRefusesAnIntervalOutOfRange) {
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  int seen = 0;
  client_->Watch(milliseconds(100), [&](const v1::ServerStatus&) { return ++seen < 3; }, {}).IgnoreError();
  EXPECT_EQ(seen, 3);
  for (const Duration interval : {Duration(milliseconds(99)), Duration(seconds(61)), Duration(seconds(-1))}) {
    const absl::Status status = client_->Watch(interval, [](const v1::ServerStatus&) { return true; }, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST_F(AdminServerTest, AWatchEndsWithTheServer) {
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  absl::Status end;
  std::thread ending;
  end = client_->Watch(seconds(60),
                       [&](const v1::ServerStatus&) {
                         ending = std::thread([this] { admin_.reset(); });
                         return true;
                       },
                       {});
  ending.join();
  EXPECT_FALSE(end.ok());
}

TEST_F(AdminServerTest, RequestsAreListedAndEndedByName) {
  StartEngine({.max_running_sequences = 1});
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  backend->CloseGate();
  const auto running = Submit(Request("running", "ten tokens", 5));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", "ten tokens", 5));
  WaitForQueued(1);
  v1::ListRequestsRequest request;
  absl::StatusOr<v1::ListRequestsResponse> list = client_->ListRequests(request);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->requests_size(), 2);
  EXPECT_EQ(list->requests(0).request_id(), "running");
  EXPECT_EQ(list->requests(0).tenant(), "default");
  EXPECT_EQ(list->requests(0).service_class(), "only");
  EXPECT_EQ(list->requests(0).state(), v1::REQUEST_STATE_PREFILL);
  EXPECT_EQ(list->requests(1).state(), v1::REQUEST_STATE_QUEUED);
  request.set_max_requests(1);
  list = client_->ListRequests(request);
  EXPECT_EQ(list->requests_size(), 1);
  EXPECT_EQ(list->left_out(), 1);
  request.set_max_requests(1001);
  EXPECT_EQ(client_->ListRequests(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.clear_max_requests();
  request.set_service_class("nobody");
  EXPECT_EQ(client_->ListRequests(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.set_service_class("only");
  request.set_tenant("nobody");
  EXPECT_EQ(client_->ListRequests(request)->requests_size(), 0);

  v1::CancelRequestRequest cancel;
  EXPECT_EQ(client_->CancelRequest(cancel).code(), absl::StatusCode::kInvalidArgument);
  cancel.set_request_id("queued");
  cancel.set_tenant("nobody");
  EXPECT_EQ(client_->CancelRequest(cancel).code(), absl::StatusCode::kNotFound);
  cancel.set_tenant("default");
  EXPECT_EQ(client_->CancelRequest(cancel), absl::OkStatus());
  backend->LetOneStepGo();
  EXPECT_EQ(queued->WaitForEnd().failure(), RefusalReason::kCancelledByOperator);
  EXPECT_EQ(client_->CancelRequest(cancel).code(), absl::StatusCode::kNotFound);
  backend->OpenGate();
  EXPECT_EQ(running->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_F(AdminServerTest, WhatIsNotTheEnginesIsHandedOnAndItsErrorsAreStatuses) {
  ASSERT_EQ(Serve(Unix()), absl::OkStatus());
  v1::ReloadPolicyRequest reload;
  reload.set_expected_hash("x");
  reload.set_dry_run(true);
  const absl::StatusOr<v1::ReloadPolicyResponse> reloaded = client_->ReloadPolicy(reload);
  ASSERT_TRUE(reloaded.ok());
  EXPECT_EQ(reloaded->hash(), "hx");
  EXPECT_TRUE(reloaded->dry_run());
  reload.set_expected_hash("none");
  EXPECT_EQ(client_->ReloadPolicy(reload).status(), absl::FailedPreconditionError("there is no file"));

  v1::GetUsageRequest usage;
  usage.mutable_since()->set_seconds(5);
  EXPECT_EQ(client_->GetUsage(usage)->from().seconds(), 5);

  v1::DrainRequest drain;
  drain.set_service_class("only");
  EXPECT_EQ(client_->Drain(drain), absl::OkStatus());
  drain.set_service_class("none");
  EXPECT_EQ(client_->Drain(drain), absl::NotFoundError("no such class"));
  EXPECT_EQ(client_->Drain({}), absl::OkStatus());
  EXPECT_EQ(drained_, "class only;class none;server;");
}

TEST(LoadingServerTest, RefusesEveryCallAndTellsHealth) {
  auto server = LoadingServer::Start("127.0.0.1:0", TlsPem());
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  AdminClient client(At(address));
  const absl::Status refusal = client.GetStatus().status();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(refusal.message().find("(MODEL_LOADING)"), std::string::npos) << refusal;
  EXPECT_EQ(client.Watch(seconds(1), [](const v1::ServerStatus&) { return true; }, {}).code(),
            absl::StatusCode::kUnavailable);
  const auto stub = grpc::health::v1::Health::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  for (const char* name : {"", "liveness"}) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(name);
    HealthCheckResponse response;
    EXPECT_TRUE(stub->Check(&context, request, &response).ok());
    EXPECT_EQ(response.status() == HealthCheckResponse::SERVING, std::string(name) == "liveness");
  }
  server->reset();
  EXPECT_TRUE(LoadingServer::Start(address, TlsPem()).ok()) << "the port is free at once";
}

// The health service alone, behind a server of its own.
class HealthServiceTest : public testing::Test {
 protected:
  HealthServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  }
  ~HealthServiceTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  static HealthCheckRequest Ask(const std::string& name) {
    HealthCheckRequest request;
    request.set_service(name);
    return request;
  }

  HealthService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_;
};

TEST_F(HealthServiceTest, CheckTellsWhatWasPublishedAndKnowsNoOtherName) {
  service_.Publish({{"", true}, {"a", false}});
  const auto check = [&](const std::string& name, HealthCheckResponse* response) {
    grpc::ClientContext context;
    return stub_->Check(&context, Ask(name), response);
  };
  HealthCheckResponse response;
  EXPECT_TRUE(check("", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  EXPECT_TRUE(check("a", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(check("b", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthServiceTest, WatchTellsEachChangeOfItsServiceAndThatItIsGone) {
  service_.Publish({{"a", true}, {"b", true}});
  grpc::ClientContext context;
  const auto watch = stub_->Watch(&context, Ask("a"));
  const auto next = [&] {
    HealthCheckResponse response;
    EXPECT_TRUE(watch->Read(&response));
    return response.status();
  };
  EXPECT_EQ(next(), HealthCheckResponse::SERVING);
  service_.Publish({{"a", true}, {"b", false}});
  service_.Publish({{"a", false}, {"b", false}});
  EXPECT_EQ(next(), HealthCheckResponse::NOT_SERVING);
  service_.Publish({{"b", false}});
  EXPECT_EQ(next(), HealthCheckResponse::SERVICE_UNKNOWN);
  service_.Publish({{"a", true}});
  EXPECT_EQ(next(), HealthCheckResponse::SERVING);
  context.TryCancel();
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HealthServiceTest, WatchersMayComeAndGoWhileThingsChange) {
  std::atomic<bool> done = false;
  std::thread publisher([&] {
    for (bool up = false; !done; up = !up) service_.Publish({{"a", up}});
  });
  std::vector<std::thread> watchers;
  for (int i = 0; i < 4; ++i) {
    watchers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        grpc::ClientContext context;
        const auto watch = stub_->Watch(&context, Ask("a"));
        HealthCheckResponse response;
        for (int seen = 0; seen < 5; ++seen) EXPECT_TRUE(watch->Read(&response));
        context.TryCancel();
        EXPECT_FALSE(watch->Finish().ok());
      }
    });
  }
  for (std::thread& watcher : watchers) watcher.join();
  done = true;
  publisher.join();
}

}  // namespace
}  // namespace berth::test
