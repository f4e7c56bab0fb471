#include "cli/client/messages.h"

#include <vector>

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

}  // namespace

v1::GenerateRequest ToProto(const GenerateSpec& spec) {
  v1::GenerateRequest request;
  request.set_request_id(spec.request_id);
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

namespace {

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

}  // namespace

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

}  // namespace berth
