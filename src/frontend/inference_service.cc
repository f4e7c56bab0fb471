#include "frontend/inference_service.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security_constants.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "frontend/call_metadata.h"
#include "frontend/load_report.h"
#include "frontend/lookups.h"
#include "frontend/rpc_methods.h"

namespace berth {
namespace {

bool Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  // Deserialize empties the buffer it is given, and this one is gRPC's.
  grpc::ByteBuffer copy(bytes);
  return grpc::GenericDeserialize<grpc::ProtoBufferReader, google::protobuf::Message>(&copy, message).ok();
}

Refusal Malformed(const google::protobuf::Message& message) {
  Refusal refusal;
  refusal.reason = RefusalReason::kInvalidRequest;
  refusal.message =
      "the request is no " + message.GetDescriptor()->full_name() + ": it is cut off, or a string in it is not UTF-8";
  return refusal;
}

// gRPC hands such a call over all the same: the client gave it up, by a reset or at its deadline, before its message
// was here. What the message would have said is nobody's fault.
Refusal NoMessage() {
  Refusal refusal;
  refusal.reason = RefusalReason::kCancelledByClient;
  refusal.message = "the client ended the call before its message was here";
  return refusal;
}

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes, &own_buffer);
  BERTH_CHECK_MSG(status.ok(), status.error_message());
  return bytes;
}

// Of the calls that balancers steer.
void AddLoadReport(const Engine& engine, grpc::CallbackServerContext* context) {
  context->AddTrailingMetadata(kLoadReportTrailer, LoadReportOf(engine.load()).SerializeAsString());
}

void AddTrailers(const CallEnding& ending, grpc::CallbackServerContext* context) {
  for (const auto& [key, value] : ending.trailers) context->AddTrailingMetadata(key, value);
}

void FinishUnary(const google::protobuf::Message* message, const CallEnding& ending,
                 grpc::CallbackServerContext* context, grpc::ByteBuffer* response, grpc::ServerUnaryReactor* reactor) {
  if (message != nullptr) *response = Serialize(*message);
  AddTrailers(ending, context);
  reactor->Finish(ending.status);
}

// The gRPC deadline in the terms of our clock.
TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return kNoDeadline;
  const auto left = deadline - std::chrono::system_clock::now();
  return left > std::chrono::hours(24 * 365) ? kNoDeadline : now + left;
}

// The tenant that a message names.
std::string_view TenantField(const v1::GenerateRequest& request) { return request.tenant(); }
std::string_view TenantField(const v1::EstimateDemandRequest& request) { return request.request().tenant(); }
std::string_view TenantField(const google::protobuf::Message&) { return {}; }

// What both reactors of Generate do. Made by the handler, freed by OnDone, which gRPC calls when Finish is through and
// no other reaction runs.
template <typename Base>
class GenerateReactor : public Base, public CallTransport {
 public:
  GenerateReactor(grpc::CallbackServerContext* context, const Engine* engine, CallRegistry* registry,
                  const RpcTimer& timer)
      : context_(context), engine_(engine), registry_(registry), timer_(timer) {}

  grpc::CallbackServerContext* context() const { return context_; }

  // Before the first event. The registry keeps the call for as long as the RPC is open.
  void SetCall(std::shared_ptr<Call> call) {
    call_ = std::move(call);
    registry_->Add(call_);
  }
  // Before the handler returns, which is before any reaction.
  void SetSubmission(std::shared_ptr<Submission> submission) { submission_ = std::move(submission); }

  void OnCancel() override {
    call_->OnCancel();
    CancelSubmission();
  }
  void OnDone() override {
    call_->OnDone();
    registry_->Remove(call_);
    delete this;
  }

  std::function<void()> SlowReaderAborter() override {
    grpc_call* const call = context_->c_call();
    grpc_call_ref(call);
    // Written past what is stuck, as trailers cannot be: the client sees this status.
    return [call] {
      const Refusal refusal = SlowReaderRefusal();
      const std::string message = refusal.message + " (" + RefusalReasonName(refusal.reason) + ")";
      const auto status = static_cast<grpc_status_code>(StatusCodeOf(refusal.reason));
      grpc_call_cancel_with_status(call, status, message.c_str(), nullptr);
      grpc_call_unref(call);
    };
  }

 protected:
  void CancelSubmission() {
    if (submission_) submission_->Cancel(call_->cancel_reason());
  }

  grpc::CallbackServerContext* const context_;
  const Engine* const engine_;
  CallRegistry* const registry_;
  const RpcTimer timer_;
  std::shared_ptr<Call> call_;
  std::shared_ptr<Submission> submission_;  // null where the codec refused
};

class UnaryReactor final : public GenerateReactor<grpc::ServerUnaryReactor> {
 public:
  UnaryReactor(grpc::CallbackServerContext* context, const Engine* engine, CallRegistry* registry,
               const RpcTimer& timer, grpc::ByteBuffer* response)
      : GenerateReactor(context, engine, registry, timer), response_(response) {}

  void Write(const google::protobuf::Message&) override { BERTH_CHECK_MSG(false, "a unary call has one message"); }
  void Finish(const google::protobuf::Message* last, const CallEnding& ending) override {
    timer_.End(ending.status.error_code());
    AddLoadReport(*engine_, context_);
    FinishUnary(last, ending, context_, response_, this);
  }

 private:
  grpc::ByteBuffer* const response_;
};

class StreamReactor final : public GenerateReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  using GenerateReactor::GenerateReactor;

  void OnWriteDone(bool ok) override {
    if (!ok) CancelSubmission();
    call_->OnWriteDone(ok);
  }

  void Write(const google::protobuf::Message& message) override {
    message_ = Serialize(message);
    StartWrite(&message_);
  }
  void Finish(const google::protobuf::Message* last, const CallEnding& ending) override {
    timer_.End(ending.status.error_code());
    AddLoadReport(*engine_, context_);
    AddTrailers(ending, context_);
    if (last == nullptr) return ServerWriteReactor::Finish(ending.status);
    message_ = Serialize(*last);
    StartWriteAndFinish(&message_, grpc::WriteOptions(), ending.status);
  }

 private:
  grpc::ByteBuffer message_;
};

// Whom the request is about as far as its own words go, since what is refused is counted too.
CallFacts FactsOf(const v1::GenerateRequest& request, const std::string& request_id, const CallContext& context) {
  CallFacts facts;
  facts.names.request_id = request_id;
  facts.arrival = context.arrival;
  facts.names.tenant = context.caller.tenant_name;
  facts.names.trace_id = context.headers.trace_id;
  facts.service_class = ClassAskedFor(request.service_class(), context.headers, *context.policy);
  facts.tenant = context.caller.tenant;
  return facts;
}

}  // namespace

InferenceService::InferenceService(const FrontendParts& parts, const FrontendOptions& options, CallRegistry* registry)
    : parts_(parts), options_(options), registry_(registry) {}

RpcTimer InferenceService::StartTimer(const char* method) const {
  return {RpcMethodOf(std::string(v1::Inference::service_full_name()) + "/" + method), parts_.metrics, parts_.clock};
}

std::optional<Refusal> InferenceService::Receive(const grpc::CallbackServerContext& context, CallContext* call) const {
  call->arrival = parts_.clock->Now();
  call->policy = parts_.engine->policy();
  call->headers = HeadersOf(context);
  if (draining_) return DrainingRefusal();
  std::variant<Caller, Refusal> caller = parts_.callers->Authenticate(call->headers.credentials, *call->policy);
  if (auto* refused = std::get_if<Refusal>(&caller)) return std::move(*refused);
  call->caller = std::move(std::get<Caller>(caller));
  return std::nullopt;
}

template <typename Request>
std::optional<Refusal> InferenceService::ParseAndResolve(const grpc::ByteBuffer& bytes, Request* request,
                                                         CallContext* call) const {
  if (!bytes.Valid()) return NoMessage();
  if (!Parse(bytes, request)) return Malformed(*request);
  const auto& [first, second, third] = call->headers.tenants;
  const std::array<TenantClaim, 4> claims = {TenantClaim{"tenant", TenantField(*request)}, first, second, third};
  if (std::optional<Refusal> refused = parts_.callers->ResolveTenant(claims, *call->policy, &call->caller)) {
    return refused;
  }
  return call->headers.fault;
}

template <typename CallType, typename Reactor>
void InferenceService::StartGenerate(const grpc::ByteBuffer& bytes, Reactor* reactor) {
  CallContext context;
  v1::GenerateRequest request;
  std::optional<Refusal> refused = Receive(*reactor->context(), &context);
  if (!refused) refused = ParseAndResolve(bytes, &request, &context);
  context.deadline = DeadlineOf(*reactor->context(), context.arrival);
  std::string request_id = parts_.codec->ResolveRequestId(request);
  CallFacts facts = FactsOf(request, request_id, context);
  std::variant<GenerateSpec, Refusal> decoded;
  if (refused) {
    decoded = *std::move(refused);
  } else {
    decoded = parts_.codec->Decode(std::move(request), request_id, context);
  }

  auto* spec = std::get_if<GenerateSpec>(&decoded);
  if (spec != nullptr) {
    facts.names.service_class = context.policy->classes[static_cast<std::size_t>(spec->service_class)].name;
    facts.service_class = spec->service_class;
    facts.tenant = spec->tenant;
    facts.choices = spec->sampling.n;
  }
  const EventEncoder encoder(parts_.tokenizer, spec != nullptr ? spec->output : OutputSpec(),
                             facts.names.service_class);
  auto call = std::make_shared<CallType>(parts_.clock, parts_.metrics, encoder, std::move(facts), reactor);
  reactor->SetCall(call);
  if (spec == nullptr) return call->OnEvent(Failed{std::move(std::get<Refusal>(decoded)), {}});
  reactor->SetSubmission(Submission::Start(parts_, std::move(*spec), context.headers.is_retry, call));
}

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* reactor = new UnaryReactor(context, parts_.engine, registry_, StartTimer("Generate"), response);
  StartGenerate<UnaryCall>(*request, reactor);
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::GenerateStream(grpc::CallbackServerContext* context,
                                                                             const grpc::ByteBuffer* request) {
  auto* reactor = new StreamReactor(context, parts_.engine, registry_, StartTimer("GenerateStream"));
  StartGenerate<StreamCall>(*request, reactor);
  return reactor;
}

template <typename Request, typename Handle>
grpc::ServerUnaryReactor* InferenceService::RunOnPool(const char* method, grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                                      Handle handle) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto finish = [context, response, reactor, timer = StartTimer(method)](const google::protobuf::Message* message,
                                                                               const CallEnding& ending) {
    timer.End(ending.status.error_code());
    FinishUnary(message, ending, context, response, reactor);
  };
  // These calls have no id of their own; a refusal has one all the same, for the log.
  const auto refuse = [this, finish](const Refusal& refusal) {
    CallNames names;
    names.request_id = parts_.codec->ResolveRequestId({});
    finish(nullptr, RefusedEnding(refusal, names));
  };
  auto request = std::make_shared<Request>();
  auto call = std::make_shared<CallContext>();
  std::optional<Refusal> refused = Receive(*context, call.get());
  if (!refused) refused = ParseAndResolve(bytes, request.get(), call.get());
  if (refused) {
    refuse(*refused);
  } else if (!parts_.pool->TryPost([context, request, call, handle = std::move(handle), finish, refuse] {
               if (context->IsCancelled()) return finish(nullptr, {grpc::Status::CANCELLED, {}});
               auto result = handle(std::move(*request), *call);
               if (const auto* refusal = std::get_if<Refusal>(&result)) return refuse(*refusal);
               finish(&std::get<0>(result), {});
             })) {
    Refusal refusal;
    refusal.reason = RefusalReason::kQueueFull;
    refusal.message = "too many calls wait to be tokenized: come back later";
    refusal.retry_after = std::chrono::seconds(1);
    refuse(refusal);
  }
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::EstimateDemand(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  return RunOnPool<v1::EstimateDemandRequest>("EstimateDemand", context, *request, response,
                                              [this](v1::EstimateDemandRequest&& message, const CallContext& call) {
                                                return berth::EstimateDemand(parts_, options_.model, std::move(message),
                                                                             call);
                                              });
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return RunOnPool<v1::TokenizeRequest>(
      "Tokenize", context, *request, response,
      [this](const v1::TokenizeRequest& message, const CallContext&) { return berth::Tokenize(parts_, message); });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return RunOnPool<v1::DetokenizeRequest>(
      "Detokenize", context, *request, response,
      [this](const v1::DetokenizeRequest& message, const CallContext&) { return berth::Detokenize(parts_, message); });
}

grpc::ServerUnaryReactor* InferenceService::GetModelInfo(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return RunOnPool<v1::GetModelInfoRequest>("GetModelInfo", context, *request, response,
                                            [this](const v1::GetModelInfoRequest& message, const CallContext& call) {
                                              return berth::GetModelInfo(parts_, options_, call.caller.tenant, message);
                                            });
}

}  // namespace berth
