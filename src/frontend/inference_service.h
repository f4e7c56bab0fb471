// berth.v1.Inference on gRPC's callback API: handlers and reactors. Messages are parsed here and not by gRPC, which
// would answer a malformed one with an empty UNIMPLEMENTED.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <optional>

#include "berth/v1/inference.grpc.pb.h"
#include "frontend/call_registry.h"
#include "frontend/codec.h"
#include "frontend/rpc_timer.h"
#include "frontend/server.h"
#include "frontend/submission.h"

namespace berth {

template <typename Base>
using RawMethods = v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::WithRawCallbackMethod_GenerateStream<
    v1::Inference::WithRawCallbackMethod_EstimateDemand<v1::Inference::WithRawCallbackMethod_Tokenize<
        v1::Inference::WithRawCallbackMethod_Detokenize<v1::Inference::WithRawCallbackMethod_GetModelInfo<Base>>>>>>;

// Thread-safe. Handlers run on gRPC's threads and never block: what takes time runs on the tokenizer pool or in the
// engine.
class InferenceService final : public RawMethods<v1::Inference::Service> {
 public:
  // `registry`, and what `parts` points to, must outlive the service.
  InferenceService(const FrontendParts& parts, const FrontendOptions& options, CallRegistry* registry);

  // From now on newcomers get DRAINING.
  void Drain() { draining_ = true; }

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* EstimateDemand(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;

 private:
  // A call of this method begins.
  RpcTimer StartTimer(const char* method) const;
  template <typename CallType, typename Reactor>
  void StartGenerate(const grpc::ByteBuffer& request, Reactor* reactor);
  // Parses, then answers with what `handle(Request, CallContext) -> std::variant<Response, Refusal>` makes of it on the
  // tokenizer pool.
  template <typename Request, typename Handle>
  grpc::ServerUnaryReactor* RunOnPool(const char* method, grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& request, grpc::ByteBuffer* response, Handle handle);
  // What is checked of every call before its message is looked into: the server's state, the caller; then, once the
  // message is parsed, for which tenant it is.
  std::optional<Refusal> Receive(const grpc::CallbackServerContext& context, CallContext* call) const;
  template <typename Request>
  std::optional<Refusal> ParseAndResolve(const grpc::ByteBuffer& bytes, Request* request, CallContext* call) const;

  const FrontendParts parts_;
  const FrontendOptions options_;
  CallRegistry* const registry_;
  std::atomic<bool> draining_{false};
};

}  // namespace berth
