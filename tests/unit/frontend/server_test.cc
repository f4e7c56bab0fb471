// The server over real gRPC, with the real engine on a fake backend.
#include "frontend/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "berth/v1/inference.grpc.pb.h"
#include "cli/client/client.h"
#include "fakes/fake_backend.h"
#include "fakes/fake_clock.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/queuing_policy.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Long enough that a few hundred tokens are more than a connection holds for a reader who does not read.
const std::string kLongPiece(1024, 'x');

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

  FrontendOptions Options() const {
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
  test::FakeBackend backend_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

GenerateClient ClientOf(const std::string& address) {
  ClientOptions options;
  options.connection.address = address;
  return GenerateClient(options);
}

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

std::string ReasonOf(const grpc::Status& status) {
  const auto info = Detail<google::rpc::ErrorInfo>(status);
  return info ? info->reason() : "no ErrorInfo";
}

std::optional<std::string> Trailer(const grpc::ClientContext& context, const std::string& key) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(key);
  if (found == trailers.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

TEST_F(ServerTest, AUnaryCallGetsTextUsageAndTheUsageTrailer) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  v1::GenerateRequest request = Request("Hello");
  request.set_request_id("mine");
  request.mutable_output()->set_return_token_ids(true);
  request.mutable_output()->set_logprobs(2);
  const grpc::Status status = Generate(request, &response, &context);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.request_id(), "mine");
  ASSERT_EQ(response.choices_size(), 1);
  EXPECT_EQ(response.choices(0).text().size(), 8U);
  EXPECT_EQ(response.choices(0).token_ids_size(), 8);
  ASSERT_EQ(response.choices(0).logprobs_size(), 8);
  EXPECT_EQ(response.choices(0).logprobs(0).top_size(), 2);
  EXPECT_EQ(response.choices(0).logprobs(0).piece(), response.choices(0).text().substr(0, 1));
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response.usage().prompt_tokens(), 5);
  EXPECT_EQ(response.usage().output_tokens(), 8);
  EXPECT_EQ(response.usage().reserved_blocks(), 1);
  v1::Usage trailer;
  ASSERT_TRUE(trailer.ParseFromString(Trailer(context, "berth-usage-bin").value_or("absent")));
  EXPECT_EQ(trailer.SerializeAsString(), response.usage().SerializeAsString());
}

TEST_F(ServerTest, AStreamSaysTheSameAsTheUnaryCall) {
  v1::GenerateResponse unary;
  ASSERT_TRUE(Generate(Request("Hello", 100), &unary).ok());
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Hello", 100));
  std::vector<v1::GenerateStreamResponse> messages;
  for (v1::GenerateStreamResponse message; reader->Read(&message);) messages.push_back(message);
  ASSERT_TRUE(reader->Finish().ok());
  ASSERT_GE(messages.size(), 4U);
  EXPECT_EQ(messages.front().admitted().max_output_tokens(), 100);
  EXPECT_THAT(messages.front().admitted().request_id(), StartsWith("berth-"));
  EXPECT_EQ(messages[messages.size() - 2].finished().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(messages.back().completed().usage().output_tokens(), 100);
  std::string text;
  for (const auto& message : messages) {
    for (const auto& delta : message.tokens().deltas()) text += delta.text();
  }
  EXPECT_EQ(text, unary.choices(0).text());
  EXPECT_TRUE(Trailer(context, "berth-usage-bin").has_value());
}

TEST_F(ServerTest, SeveralChoicesComeInOneAnswer) {
  v1::GenerateRequest request = Request("Hello", 6);
  request.mutable_sampling()->set_n(2);
  request.mutable_output()->set_prompt_logprobs(0);
  v1::GenerateResponse unary;
  ASSERT_TRUE(Generate(request, &unary).ok());
  ASSERT_EQ(unary.choices_size(), 2);
  for (int q = 0; q < 2; ++q) {
    EXPECT_EQ(unary.choices(q).index(), q);
    EXPECT_EQ(unary.choices(q).text().size(), 6U);
    EXPECT_EQ(unary.choices(q).finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(unary.prompt_logprobs_size(), 4);
  EXPECT_EQ(unary.usage().output_tokens(), 12);

  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request);
  std::map<std::int32_t, std::string> texts;
  int finished = 0;
  for (v1::GenerateStreamResponse message; reader->Read(&message);) {
    for (const auto& delta : message.tokens().deltas()) texts[delta.index()] += delta.text();
    if (message.has_finished()) ++finished;
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(finished, 2);
  EXPECT_EQ(texts[0], unary.choices(0).text());
  EXPECT_EQ(texts[1], unary.choices(1).text());
}

TEST_F(ServerTest, MoreChoicesThanTheServerRunsAreInvalid) {
  v1::GenerateRequest request = Request("Hello");
  request.mutable_sampling()->set_n(3);
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "INVALID_REQUEST");
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "sampling.n");
}

TEST_F(ServerTest, TheClassIsToldAndAnUnknownOneIsRefused) {
  v1::GenerateRequest request = Request("Hello");
  request.set_service_class("only");
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateStreamResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.admitted().service_class(), "only");
  while (reader->Read(&message)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  request.set_service_class("other");
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_CLASS");
}

TEST_F(ServerTest, TheSeedInUseIsTold) {
  v1::GenerateRequest request = Request("Hello");
  request.mutable_sampling()->set_seed(1234567890123456789ULL);
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateStreamResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.admitted().seed(), 1234567890123456789ULL);
  context.TryCancel();
  reader->Finish();
}

TEST_F(ServerTest, ARefusalIsAStatusWithDetailsAndNothingElse) {
  grpc::ClientContext context;
  v1::GenerateRequest request = Request("Hello");
  request.set_request_id("mine");
  request.mutable_sampling()->set_top_p(1.5F);
  auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateStreamResponse message;
  EXPECT_FALSE(reader->Read(&message));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("sampling.top_p is 1.5"));
  EXPECT_EQ(ReasonOf(status), "INVALID_REQUEST");
  EXPECT_EQ(Detail<google::rpc::RequestInfo>(status)->request_id(), "mine");
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(Trailer(context, "grpc-retry-pushback-ms"), "-1");
  EXPECT_FALSE(Trailer(context, "berth-usage-bin").has_value());
}

TEST_F(ServerTest, BytesThatAreNoRequestAreAnInvalidArgument) {
  for (const char* method :
       {"Generate", "GenerateStream", "EstimateDemand", "Tokenize", "Detokenize", "GetModelInfo"}) {
    const grpc::Status status = CallRaw(std::string("/berth.v1.Inference/") + method, "\x0a\x05oops");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(ReasonOf(status), "INVALID_REQUEST") << method;
  }
  // Field 3 is `text`; 0xFF is never UTF-8.
  const grpc::Status status = CallRaw("/berth.v1.Inference/Generate", "\x1a\x01\xff");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("UTF-8"));
}

TEST_F(ServerTest, AMessageBeyondTheBoundIsRefused) {
  const grpc::Status status = Generate(Request(std::string((1 << 20) + 1, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServerTest, TheRequestBeyondTheQueuesBoundIsRefusedAndMayComeBack) {
  backend_.CloseGate();
  std::vector<Held> held;
  held.push_back(StartHeld("running"));
  backend_.WaitForStepAtGate();
  // The class has two places for those who wait, also for a second sequence that could run in the next step.
  for (int i = 0; i < 2; ++i) held.push_back(StartHeld("queued-" + std::to_string(i)));
  while (engine_->load().queued_requests < 2) std::this_thread::yield();

  grpc::ClientContext context;
  const grpc::Status status = Generate(Request("one more"), nullptr, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "QUEUE_FULL");
  const auto metadata = Detail<google::rpc::ErrorInfo>(status)->metadata();
  EXPECT_EQ(metadata.at("limitName"), "queue.max_requests");
  EXPECT_EQ(metadata.at("limitRequests"), "2");
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status).has_value());
  EXPECT_GE(std::stoi(Trailer(context, "grpc-retry-pushback-ms").value_or("0")), 100);

  backend_.OpenGate();
  for (Held& request : held) EXPECT_TRUE(request.status.get().ok());
}

TEST_F(ServerTest, ALiveRequestIdIsNotGivenTwice) {
  backend_.CloseGate();
  Held held = StartHeld("twin");
  backend_.WaitForStepAtGate();
  v1::GenerateRequest request = Request("Hello");
  request.set_request_id("twin");
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ReasonOf(status), "DUPLICATE_REQUEST_ID");
  backend_.OpenGate();
  EXPECT_TRUE(held.status.get().ok());
}

TEST_F(ServerTest, ACancelledCallGivesItsPlaceAndBlocksBack) {
  backend_.CloseGate();
  Held running = StartHeld("running");
  backend_.WaitForStepAtGate();
  Held queued = StartHeld("queued");
  while (engine_->load().queued_requests < 1) std::this_thread::yield();
  queued.context->TryCancel();
  EXPECT_EQ(queued.status.get().error_code(), grpc::StatusCode::CANCELLED);
  running.context->TryCancel();
  EXPECT_EQ(running.status.get().error_code(), grpc::StatusCode::CANCELLED);
  backend_.OpenGate();
  while (engine_->load().running_requests + engine_->load().queued_requests > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->load().held_blocks, 0);
  EXPECT_EQ(engine_->load().reserved_blocks, 0);
  EXPECT_TRUE(Generate(Request("after")).ok());
}

TEST_F(ServerTest, AGrpcDeadlineEndsTheRequestOnTheServerToo) {
  backend_.CloseGate();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Generate(Request("late"), nullptr, &context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  backend_.OpenGate();
  while (engine_->load().running_requests > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->load().reserved_blocks, 0);
}

TEST_F(ServerTest, ATimeoutBeforeTheFirstTokenIsADeadlineStatusWithUsage) {
  backend_.CloseGate();
  auto answer = std::async(std::launch::async, [this] {
    v1::GenerateRequest request = Request(std::string(600, 'x'));  // two steps of prefill
    request.mutable_timeout()->set_seconds(5);
    grpc::ClientContext context;
    grpc::Status status = Generate(request, nullptr, &context);
    EXPECT_TRUE(Trailer(context, "berth-usage-bin").has_value());
    return status;
  });
  backend_.WaitForStepAtGate();
  clock_.Advance(std::chrono::seconds(6));
  backend_.OpenGate();
  const grpc::Status status = answer.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonOf(status), "DEADLINE_EXCEEDED");
}

TEST_F(ServerTest, ABackendFaultIsToldAndTurnsReadinessOff) {
  EXPECT_EQ(CheckHealth("readiness"), Health::kServing);
  backend_.FailAwait(0);
  const grpc::Status status = Generate(Request("Hello"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ReasonOf(status), "BACKEND_FAULT");
  while (CheckHealth("readiness") != Health::kNotServing) std::this_thread::yield();
  EXPECT_EQ(CheckHealth("liveness"), Health::kServing);
  ASSERT_TRUE(Generate(Request("Hello")).ok());
  while (CheckHealth("readiness") != Health::kServing) std::this_thread::yield();
}

TEST_F(ServerTest, HealthKnowsItsServicesAndNoOthers) {
  for (const char* name : {"", "berth.v1.Inference", "liveness", "readiness"}) {
    EXPECT_EQ(CheckHealth(name), Health::kServing) << name;
  }
  EXPECT_EQ(CheckHealth("berth.v1.Nothing"), Health::kUnknown);
}

TEST_F(ServerTest, AShutdownLetsWhatRunsFinishAndRefusesNewcomers) {
  backend_.CloseGate();
  Held held = StartHeld("running");
  backend_.WaitForStepAtGate();
  std::thread shutdown([this] { server_->Shutdown(std::chrono::minutes(1)); });
  while (CheckHealth("readiness") != Health::kNotServing) std::this_thread::yield();
  EXPECT_EQ(CheckHealth(""), Health::kNotServing);
  EXPECT_EQ(CheckHealth("liveness"), Health::kServing);
  const grpc::Status status = Generate(Request("newcomer"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  v1::GetModelInfoResponse info;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetModelInfo(&context, {}, &info).error_code(), grpc::StatusCode::UNAVAILABLE);
  backend_.OpenGate();
  EXPECT_TRUE(held.status.get().ok());
  shutdown.join();
  server_->Shutdown(Duration::zero());
}

TEST_F(ServerTest, AShutdownWithNoTimeEndsWhatRunsWithDraining) {
  backend_.CloseGate();
  Held held = StartHeld("running");
  backend_.WaitForStepAtGate();
  std::thread shutdown([this] { server_->Shutdown(Duration::zero()); });
  while (engine_->serving()) std::this_thread::yield();
  backend_.OpenGate();
  const grpc::Status status = held.status.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  shutdown.join();
}

TEST_F(ServerTest, APortInUseIsOneClearLine) {
  FrontendOptions options = Options();
  options.listen_address = server_->address();
  const auto second = GrpcServer::Start(options, engine_.get(), &tokenizer_, &clock_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("cannot listen on " + server_->address() + ": the port is in use"));
}

TEST_F(ServerTest, AUnixSocketServesToo) {
  FrontendOptions options = Options();
  options.listen_address = "unix:" + testing::TempDir() + "/berth-server-" + std::to_string(::getpid());
  auto second = GrpcServer::Start(options, engine_.get(), &tokenizer_, &clock_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->address(), options.listen_address);
  GenerateSpec spec;
  spec.prompt_text = "Hello";
  spec.stopping.max_output_tokens = 2;
  EXPECT_TRUE(ClientOf(options.listen_address).GenerateStream(spec, [](const StreamEvent&) {}).ok());
}

TEST_F(ServerTest, DemandIsEstimatedAsGenerateWouldReserveIt) {
  const auto estimate = [this](const v1::GenerateRequest& request) {
    v1::EstimateDemandRequest wrapped;
    *wrapped.mutable_request() = request;
    v1::EstimateDemandResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->EstimateDemand(&context, wrapped, &response);
    return std::pair(status, response);
  };
  const auto [status, response] = estimate(Request(std::string(20, 'x'), 30));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.fits());
  EXPECT_FALSE(response.has_refusal());
  EXPECT_EQ(response.prompt_tokens(), 20);
  EXPECT_EQ(response.max_output_tokens(), 30);
  EXPECT_EQ(response.worst_blocks(), 4);  // ⌈49 / 16⌉
  EXPECT_EQ(response.block_tokens(), 16);
  EXPECT_EQ(response.pool_blocks(), 1000);
  EXPECT_EQ(response.kv_bytes(), 4 * 16 * 2 * 2 * 2 * 8 * 2);
  v1::GenerateResponse generated;
  ASSERT_TRUE(Generate(Request(std::string(20, 'x'), 30), &generated).ok());
  EXPECT_EQ(generated.usage().reserved_blocks(), 4);

  const auto [large_status, large] = estimate(Request("x", 20'000));
  ASSERT_TRUE(large_status.ok());
  EXPECT_FALSE(large.fits());
  EXPECT_EQ(large.refusal().reason(), "REQUEST_TOO_LARGE");
  EXPECT_EQ(large.refusal().limit_name(), "kv_blocks");
  EXPECT_EQ(large.refusal().limit(), 1000);
  EXPECT_EQ(large.refusal().asked(), 1250);

  EXPECT_EQ(estimate({}).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, TextGoesToIdsAndBack) {
  v1::TokenizeRequest request;
  request.set_text("hé");
  request.set_return_pieces(true);
  v1::TokenizeResponse ids;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Tokenize(&context, request, &ids).ok());
  }
  EXPECT_THAT(ids.token_ids(), ElementsAre('h', 0xC3, 0xA9));
  EXPECT_THAT(ids.pieces(), ElementsAre("h", "\xC3", "\xA9"));
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Detokenize(&context, back, &text).ok());
  }
  EXPECT_EQ(text.text(), "hé");
  back.add_token_ids(-1);
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Detokenize(&context, back, &text).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, LookupsKnowOnlyTheServedModel) {
  v1::TokenizeRequest tokenize;
  v1::TokenizeResponse tokenized;
  v1::DetokenizeRequest detokenize;
  v1::DetokenizeResponse detokenized;
  v1::GetModelInfoRequest info;
  v1::GetModelInfoResponse informed;
  tokenize.set_model("other");
  detokenize.set_model("other");
  info.set_model("other");
  grpc::ClientContext contexts[3];
  EXPECT_EQ(ReasonOf(stub_->Tokenize(&contexts[0], tokenize, &tokenized)), "MODEL_NOT_FOUND");
  EXPECT_EQ(ReasonOf(stub_->Detokenize(&contexts[1], detokenize, &detokenized)), "MODEL_NOT_FOUND");
  EXPECT_EQ(ReasonOf(stub_->GetModelInfo(&contexts[2], info, &informed)), "MODEL_NOT_FOUND");
}

TEST_F(ServerTest, ModelInfoTellsTheModelAndItsCache) {
  grpc::ClientContext context;
  v1::GetModelInfoResponse info;
  ASSERT_TRUE(stub_->GetModelInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.name(), "tiny");
  EXPECT_EQ(info.architecture(), "llama");
  EXPECT_EQ(info.model_title(), "Tiny");
  EXPECT_EQ(info.vocab_size(), tokenizer_.vocab_size());
  EXPECT_EQ(info.max_context_tokens(), kContextTokens);
  EXPECT_EQ(info.trained_context_tokens(), 200'000);
  EXPECT_EQ(info.layers(), 2);
  EXPECT_EQ(info.hidden_size(), 32);
  EXPECT_EQ(info.heads(), 4);
  EXPECT_EQ(info.kv_heads(), 2);
  EXPECT_EQ(info.head_dim(), 8);
  EXPECT_EQ(info.block_tokens(), 16);
  EXPECT_EQ(info.pool_blocks(), 1000);
  EXPECT_EQ(info.kv_bytes_per_token(), 2 * 2 * 2 * 8 * 2);
  EXPECT_EQ(info.kv_dtype(), "bf16");
  EXPECT_EQ(info.bos_token_id(), test::FakeTokenizer::kBos);
  EXPECT_THAT(info.eos_token_ids(), ElementsAre(test::FakeTokenizer::kEos, test::FakeTokenizer::kEndOfTurn));
  EXPECT_EQ(info.tokenizer(), "fake bytes");
  EXPECT_EQ(info.default_output_tokens(), 8);
  EXPECT_FALSE(info.server_version().empty());
}

TEST_F(ServerTest, TheClientLibraryHearsTheProjectsOwnEvents) {
  GenerateClient client = ClientOf(server_->address());
  GenerateSpec spec;
  spec.request_id = "from-client";
  spec.prompt_text = "Hello";
  spec.stopping.max_output_tokens_is_default = true;
  spec.stopping.stop_token_ids = {test::FakeTokenizer::kEos};
  spec.output.logprobs = 1;
  spec.output.prompt_logprobs = 0;
  spec.output.return_token_ids = true;
  std::vector<StreamEvent> events;
  const absl::Status status = client.GenerateStream(spec, [&](const StreamEvent& event) { events.push_back(event); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(std::get<Admitted>(events.front()).request_id, "from-client");
  EXPECT_EQ(std::get<Admitted>(events.front()).max_output_tokens, 8);
  EXPECT_EQ(std::get<TokenDelta>(events[1]).token_ids.size(), std::get<TokenDelta>(events[1]).logprobs.size());
  EXPECT_EQ(std::get<TokenDelta>(events[1]).logprobs.front().top.size(), 1U);
  EXPECT_EQ(std::get<Finished>(events[events.size() - 2]).reason, FinishReason::kLength);
  EXPECT_EQ(std::get<Completed>(events.back()).usage.output_tokens, 8);
  EXPECT_EQ(std::get<Completed>(events.back()).prompt_logprobs.size(), 4U);
}

TEST_F(ServerTest, TheClientLibraryTellsARefusalInOneLine) {
  GenerateSpec spec;
  spec.prompt_text = "Hello";
  spec.stopping.max_output_tokens = 8;
  spec.sampling.top_p = 7.0F;
  const absl::Status status = ClientOf(server_->address()).GenerateStream(spec, [](const StreamEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("sampling.top_p is 7"));
  EXPECT_THAT(std::string(status.message()), EndsWith("(INVALID_REQUEST)"));
}

TEST_F(ServerTest, TheClientLibraryNamesAnAddressWhereNobodyListens) {
  const std::string address = server_->address();
  server_.reset();
  const absl::Status status = ClientOf(address).GenerateStream({}, [](const StreamEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), StartsWith("nothing listens at " + address));
}

// Answers, cancels and ends in every order: what sanitizers are for.
TEST_F(ServerTest, ManyCallsThatComeAndGoLeaveNothingBehind) {
  std::vector<std::thread> clients;
  clients.reserve(4);
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([this, c] {
      for (int i = 0; i < 60; ++i) {
        grpc::ClientContext context;
        auto reader = stub_->GenerateStream(&context, Request("Hello", 1 + (i * 7 + c) % 40));
        v1::GenerateStreamResponse message;
        for (int read = 0; reader->Read(&message); ++read) {
          if (read == i % 5 && i % 3 == 0) context.TryCancel();
        }
        const grpc::Status status = reader->Finish();
        const auto code = status.error_code();
        EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::CANCELLED ||
                    code == grpc::StatusCode::RESOURCE_EXHAUSTED)
            << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server_.reset();
  EXPECT_EQ(engine_->load().running_requests + engine_->load().queued_requests, 0);
  EXPECT_EQ(engine_->load().reserved_blocks, 0);
}

class SlowReaderTest : public ServerTest {
 protected:
  SlowReaderTest() : ServerTest(test::Script(std::vector<TokenId>(), test::FakeTokenizer::kFirstPiece)) {}
};

TEST_F(SlowReaderTest, AReaderWhoDoesNotReadLosesTheStreamAndNobodyElseWaits) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  auto stub = v1::Inference::NewStub(Connect(arguments));
  backend_.CloseGate();
  grpc::ClientContext context;
  auto reader = stub->GenerateStream(&context, Request("Hello", 15'000));
  v1::GenerateStreamResponse message;
  ASSERT_TRUE(reader->Read(&message));
  for (int i = 0; i < 300; ++i) {
    backend_.WaitForStepAtGate();
    backend_.LetOneStepGo();
  }
  backend_.WaitForStepAtGate();
  // Time goes by, and the request goes on until the server takes the stream away. Not so fast that it is through by
  // then.
  while (engine_->load().running_requests > 0) {
    clock_.Advance(std::chrono::seconds(1));
    backend_.LetOneStepGo();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  while (reader->Read(&message)) {
    EXPECT_FALSE(message.has_completed());
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("SLOW_READER"));
  backend_.OpenGate();
  EXPECT_TRUE(Generate(Request("others"), nullptr).ok());
}

}  // namespace
}  // namespace berth
