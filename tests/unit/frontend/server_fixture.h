// The server over real gRPC, with the real engine on a fake backend.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "berth/v1/inference.grpc.pb.h"
#include "fakes/fake_backend.h"
#include "fakes/fake_clock.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/queuing_policy.h"
#include "fakes/recording_metrics.h"
#include "frontend/server.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {

// Long enough that a few hundred tokens are more than a connection holds for a reader who does not read.
inline const std::string kLongPiece(1024, 'x');

class ServerTest : public testing::Test {
 protected:
  explicit ServerTest(test::NextToken next_token = test::HashedLetter)
      : backend_(Info(), std::move(next_token)),
        engine_(std::make_unique<Engine>(MakeEngineOptions(), &backend_, &tokenizer_, &clock_)) {}

  // Two sequences may run and two requests wait.
  EngineOptions MakeEngineOptions() const {
    EngineOptions options;
    options.max_context_tokens = kContextTokens;
    options.policy = test::QueuingPolicy(Info().pool, 2, Info().max_step_tokens, 2);
    options.policy.classes[0].default_output_tokens = 8;
    options.calibration_steps = 0;
    options.probe_interval = std::chrono::hours(1);
    return options;
  }

  void SetUp() override {
    absl::StatusOr<std::unique_ptr<GrpcServer>> server =
        GrpcServer::Start(Options(), engine_.get(), &tokenizer_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Connect({});
    stub_ = v1::Inference::NewStub(channel_);
  }
  void TearDown() override { backend_.OpenGate(); }

  static constexpr std::int32_t kContextTokens = 100'000;

  BackendInfo Info() const {
    return {.name = "fake",
            .pool = {.num_blocks = 1000, .block_tokens = 16},
            .kv_dtype = KvDtype::kBf16,
            .vocab_size = tokenizer_.vocab_size(),
            .max_context_tokens = kContextTokens,
            .max_step_tokens = 512};
  }

  virtual FrontendOptions Options() {
    FrontendOptions options;
    options.listen_address = "127.0.0.1:0";
    options.connections = {.max_message_bytes = 1 << 20,
                           .max_metadata_bytes = 16 * 1024,
                           .max_streams = 1024,
                           .max_memory_bytes = std::int64_t{1} << 29,
                           .max_age = std::nullopt};
    options.write_timeout = std::chrono::seconds(10);
    options.limits = {.max_stop_strings = 4,
                      .max_stop_string_bytes = 16,
                      .max_logit_bias = 8,
                      .max_logprobs = 5,
                      .max_request_id_bytes = 128};
    options.model.name = "tiny";
    options.model.config.architecture = "llama";
    options.model.config.name = "Tiny";
    options.model.config.layers = 2;
    options.model.config.hidden = 32;
    options.model.config.heads = 4;
    options.model.config.kv_heads = 2;
    options.model.config.head_dim = 8;
    options.model.config.context_tokens = 200'000;
    options.model.max_context_tokens = kContextTokens;
    options.model.pool = backend_.info().pool;
    options.metrics = &metrics_;
    return options;
  }

  std::shared_ptr<grpc::Channel> Connect(grpc::ChannelArguments arguments) const {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments);
  }

  static v1::GenerateRequest Request(const std::string& text, std::int32_t max_output_tokens = 8) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_stopping()->set_max_output_tokens(max_output_tokens);
    return request;
  }

  grpc::Status Generate(const v1::GenerateRequest& request, v1::GenerateResponse* response = nullptr,
                        grpc::ClientContext* context = nullptr) const {
    grpc::ClientContext own_context;
    v1::GenerateResponse own_response;
    return stub_->Generate(context != nullptr ? context : &own_context, request,
                           response != nullptr ? response : &own_response);
  }

  // Returns once the changed policy is in force for everybody.
  template <typename Change>
  void ChangePolicy(Change change) const {
    const std::shared_ptr<const Policy> before = engine_->policy();
    Policy policy = *before;
    change(&policy);
    engine_->SetPolicy(std::move(policy));
    while (engine_->policy() == before) std::this_thread::yield();
  }

  // A request that runs and stops at the gate in its first step, until the gate is opened.
  struct Held {
    std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
    std::future<grpc::Status> status;
  };
  Held StartHeld(const std::string& id) const {
    Held held;
    held.status = std::async(std::launch::async, [this, id, context = held.context.get()] {
      v1::GenerateRequest request = Request("held");
      request.set_request_id(id);
      return Generate(request, nullptr, context);
    });
    return held;
  }

  // Bytes in and out: what no stub would send, and services whose stubs are not installed.
  grpc::Status CallRaw(const std::string& method, const std::string& bytes, std::string* answer = nullptr) const {
    grpc::GenericStub stub(channel_);
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                   [&done](grpc::Status status) { done.set_value(std::move(status)); });
    grpc::Status status = done.get_future().get();
    if (status.ok() && answer != nullptr) {
      grpc::Slice all;
      EXPECT_TRUE(response.DumpToSingleSlice(&all).ok());
      answer->assign(reinterpret_cast<const char*>(all.begin()), all.size());
    }
    return status;
  }

  enum class Health { kServing, kNotServing, kUnknown, kError };
  // grpc.health.v1: HealthCheckRequest has the service's name in field 1, HealthCheckResponse the status in field 1.
  Health CheckHealth(const std::string& service) const {
    std::string request;
    if (!service.empty()) request = std::string("\x0a") + static_cast<char>(service.size()) + service;
    std::string answer;
    const grpc::Status status = CallRaw("/grpc.health.v1.Health/Check", request, &answer);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return Health::kUnknown;
    if (!status.ok() || answer.size() != 2 || answer[0] != '\x08') return Health::kError;
    return answer[1] == 1 ? Health::kServing : Health::kNotServing;
  }

  test::FakeClock clock_;
  test::FakeTokenizer tokenizer_{{kLongPiece}};
  test::RecordingMetrics metrics_;
  test::FakeBackend backend_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

template <typename Message>
std::optional<Message> Detail(const grpc::Status& status) {
  google::rpc::Status details;
  Message message;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&message)) return message;
  }
  return std::nullopt;
}

inline std::string ReasonOf(const grpc::Status& status) {
  const auto info = Detail<google::rpc::ErrorInfo>(status);
  return info ? info->reason() : "no ErrorInfo";
}

inline std::optional<std::string> Trailer(const grpc::ClientContext& context, const std::string& key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  if (found == trailers.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

}  // namespace berth
