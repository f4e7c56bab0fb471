#include "cli/client/client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "berth/v1/inference.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {
namespace {

Duration FromProto(const google::protobuf::Duration& d) {
  return std::chrono::seconds(d.seconds()) + std::chrono::nanoseconds(d.nanos());
}

void SamplingToProto(const SamplingSpec& spec, v1::Sampling* out) {
  out->set_temperature(spec.temperature);
  out->set_top_k(spec.top_k);
  out->set_top_p(spec.top_p);
  out->set_min_p(spec.min_p);
  out->set_seed(spec.seed);
  out->set_n(spec.n);
  out->set_repetition_penalty(spec.repetition_penalty);
  out->set_presence_penalty(spec.presence_penalty);
  out->set_frequency_penalty(spec.frequency_penalty);
  for (const auto& [id, bias] : spec.logit_bias) (*out->mutable_logit_bias())[id] = bias;
}

void StoppingToProto(const StoppingSpec& spec, v1::Stopping* out) {
  if (!spec.max_output_tokens_is_default) out->set_max_output_tokens(spec.max_output_tokens);
  out->set_min_output_tokens(spec.min_output_tokens);
  out->mutable_stop_strings()->Assign(spec.stop_strings.begin(), spec.stop_strings.end());
  out->mutable_stop_token_ids()->Assign(spec.stop_token_ids.begin(), spec.stop_token_ids.end());
  out->set_include_stop_text(spec.include_stop_text);
  out->set_ignore_eos(spec.ignore_eos);
}

v1::GenerateRequest ToProto(const GenerateSpec& spec, const ClientOptions& options) {
  v1::GenerateRequest request;
  request.set_request_id(spec.request_id);
  request.set_model(options.model);
  request.set_service_class(options.service_class);
  if (spec.prompt_is_ids) {
    request.mutable_token_ids()->mutable_ids()->Assign(spec.prompt_ids.begin(), spec.prompt_ids.end());
  } else {
    request.set_text(spec.prompt_text);
  }
  request.set_parse_special_tokens(spec.parse_special_tokens);
  SamplingToProto(spec.sampling, request.mutable_sampling());
  StoppingToProto(spec.stopping, request.mutable_stopping());
  if (spec.output.logprobs != kNoLogprobs) request.mutable_output()->set_logprobs(spec.output.logprobs);
  if (spec.output.prompt_logprobs != kNoLogprobs) {
    request.mutable_output()->set_prompt_logprobs(spec.output.prompt_logprobs);
  }
  request.mutable_output()->set_return_token_ids(spec.output.return_token_ids);
  request.mutable_output()->set_echo_prompt(spec.output.echo_prompt);
  return request;
}

std::vector<TokenLogprob> FromProto(const google::protobuf::RepeatedPtrField<v1::TokenLogprob>& logprobs) {
  std::vector<TokenLogprob> out;
  out.reserve(static_cast<size_t>(logprobs.size()));
  for (const v1::TokenLogprob& in : logprobs) {
    TokenLogprob& logprob = out.emplace_back(TokenLogprob{in.token_id(), in.logprob(), {}});
    for (const v1::TokenLogprob& top : in.top()) logprob.top.push_back({top.token_id(), top.logprob()});
  }
  return out;
}

Usage FromProto(const v1::Usage& in) {
  Usage out;
  out.prompt_tokens = in.prompt_tokens();
  out.cached_tokens = in.cached_tokens();
  out.output_tokens = in.output_tokens();
  out.reserved_blocks = in.reserved_blocks();
  out.peak_blocks = in.peak_blocks();
  out.kv_block_seconds = in.kv_block_seconds();
  out.held_block_seconds = in.held_block_seconds();
  out.accelerator_seconds = in.accelerator_seconds();
  out.queue_time = FromProto(in.queue_time());
  out.prefill_time = FromProto(in.prefill_time());
  out.decode_time = FromProto(in.decode_time());
  out.time_to_first_token = FromProto(in.time_to_first_token());
  out.preemptions = in.preemptions();
  out.recomputed_tokens = in.recomputed_tokens();
  return out;
}

FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_TOKEN:
      return FinishReason::kStopToken;
    case v1::FINISH_REASON_STOP_STRING:
      return FinishReason::kStopString;
    case v1::FINISH_REASON_DEADLINE:
      return FinishReason::kDeadline;
    default:
      return FinishReason::kLength;
  }
}

Finished FromProto(const v1::Finished& in) {
  Finished out{in.index(), FromProto(in.finish_reason()), {}};
  if (in.stop_match().has_stop_string()) out.stop_match = in.stop_match().stop_string();
  if (in.stop_match().has_stop_token_id()) out.stop_match = TokenId{in.stop_match().stop_token_id()};
  return out;
}

Admitted FromProto(const v1::Admitted& in) {
  return {in.request_id(), in.reserved_blocks(), FromProto(in.queue_time()), in.max_output_tokens(),
          in.seed(),       in.prompt_tokens(),   in.cached_tokens()};
}

void Dispatch(const v1::GenerateStreamResponse& response, const std::function<void(const StreamEvent&)>& on_event) {
  switch (response.event_case()) {
    case v1::GenerateStreamResponse::kAdmitted:
      return on_event(FromProto(response.admitted()));
    case v1::GenerateStreamResponse::kTokens:
      for (const v1::TokenDelta& in : response.tokens().deltas()) {
        on_event(TokenDelta{
            in.index(), in.text(), {in.token_ids().begin(), in.token_ids().end()}, FromProto(in.logprobs())});
      }
      return;
    case v1::GenerateStreamResponse::kFinished:
      return on_event(FromProto(response.finished()));
    case v1::GenerateStreamResponse::kCompleted:
      return on_event(
          Completed{FromProto(response.completed().usage()), FromProto(response.completed().prompt_logprobs())});
    case v1::GenerateStreamResponse::EVENT_NOT_SET:
      return;
  }
}

// The gRPC codes are absl's, number by number.
absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      if (detail.UnpackTo(&info)) message += " (" + info.reason() + ")";
    }
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

}  // namespace

class GenerateClient::Impl {
 public:
  explicit Impl(ClientOptions options) : options_(std::move(options)) {
    grpc::ChannelArguments arguments;
    // The server's bound is on what it is sent; what it sends grows with the log-probabilities asked for.
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(options_.address, grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::Inference::NewStub(channel_);
  }

  absl::Status GenerateStream(const GenerateSpec& spec, const std::function<void(const StreamEvent&)>& on_event,
                              const std::stop_token& stop) {
    if (absl::Status connected = WaitUntilConnected(); !connected.ok()) return connected;
    grpc::ClientContext context;
    if (options_.timeout > Duration::zero()) {
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::duration_cast<std::chrono::system_clock::duration>(options_.timeout));
    }
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    auto reader = stub_->GenerateStream(&context, ToProto(spec, options_));
    v1::GenerateStreamResponse response;
    while (reader->Read(&response)) Dispatch(response, on_event);
    return ToStatus(reader->Finish());
  }

 private:
  // A refused connection is an answer; only silence is waited for.
  absl::Status WaitUntilConnected() {
    const auto deadline = std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(options_.connect_timeout);
    grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY) {
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
        return absl::UnavailableError("nothing listens at " + options_.address +
                                      ": start 'berth serve' there, or give the address it printed");
      }
      if (!channel_->WaitForStateChange(state, deadline)) {
        return absl::UnavailableError(
            absl::StrCat("no answer from ", options_.address, " within ", ToSeconds(options_.connect_timeout), " s"));
      }
      state = channel_->GetState(true);
    }
    return absl::OkStatus();
  }

  const ClientOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

GenerateClient::GenerateClient(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
GenerateClient::~GenerateClient() = default;

absl::Status GenerateClient::GenerateStream(const GenerateSpec& spec,
                                            const std::function<void(const StreamEvent&)>& on_event,
                                            const std::stop_token& stop) {
  return impl_->GenerateStream(spec, on_event, stop);
}

}  // namespace berth
