#include "frontend/encode.h"

#include <utility>

namespace berth {
namespace {

void EncodeToken(const Tokenizer& tokenizer, TokenId id, float logprob, v1::TokenLogprob* out) {
  out->set_token_id(id);
  out->set_logprob(logprob);
  out->set_piece(std::string(ShownPiece(tokenizer, id)));
}

}  // namespace

void EncodeDuration(Duration in, google::protobuf::Duration* out) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(in);
  out->set_seconds(seconds.count());
  out->set_nanos(static_cast<std::int32_t>((in - seconds).count()));
}

void EncodeUsage(const Usage& in, v1::Usage* out) {
  out->set_prompt_tokens(in.prompt_tokens);
  out->set_cached_tokens(in.cached_tokens);
  out->set_output_tokens(in.output_tokens);
  out->set_reserved_blocks(in.reserved_blocks);
  out->set_peak_blocks(in.peak_blocks);
  out->set_kv_block_seconds(in.kv_block_seconds);
  out->set_held_block_seconds(in.held_block_seconds);
  out->set_accelerator_seconds(in.accelerator_seconds);
  EncodeDuration(in.queue_time, out->mutable_queue_time());
  EncodeDuration(in.prefill_time, out->mutable_prefill_time());
  EncodeDuration(in.decode_time, out->mutable_decode_time());
  if (in.output_tokens > 0) EncodeDuration(in.time_to_first_token, out->mutable_time_to_first_token());
  out->set_preemptions(in.preemptions);
  out->set_recomputed_tokens(in.recomputed_tokens);
}

void EncodeRefusal(const Refusal& in, v1::RefusalInfo* out) {
  out->set_reason(RefusalReasonName(in.reason));
  out->set_message(in.message);
  out->set_limit_name(in.limit_name);
  out->set_limit(in.limit);
  out->set_asked(in.asked);
}

std::string_view ShownPiece(const Tokenizer& tokenizer, TokenId id) {
  // A padded embedding has rows that no token of the vocabulary stands for.
  if (id < 0 || id >= tokenizer.vocab_size()) return {};
  const std::string_view piece = tokenizer.Piece(id);
  return piece.empty() ? tokenizer.Spelling(id) : piece;
}

EventEncoder::EventEncoder(const Tokenizer* tokenizer, const OutputSpec& output, std::string service_class)
    : tokenizer_(tokenizer), return_token_ids_(output.return_token_ids), service_class_(std::move(service_class)) {}

void EventEncoder::Encode(const Admitted& in, v1::Admitted* out) const {
  out->set_request_id(in.request_id);
  out->set_service_class(service_class_);
  out->set_reserved_blocks(in.reserved_blocks);
  EncodeDuration(in.queue_time, out->mutable_queue_time());
  out->set_max_output_tokens(in.max_output_tokens);
  out->set_seed(in.seed);
  out->set_prompt_tokens(in.prompt_tokens);
  out->set_cached_tokens(in.cached_tokens);
}

void EventEncoder::EncodeLogprobs(const std::vector<TokenLogprob>& in, Logprobs* out) const {
  for (const TokenLogprob& logprob : in) {
    v1::TokenLogprob* message = out->Add();
    EncodeToken(*tokenizer_, logprob.token_id, logprob.logprob, message);
    for (const TopLogprob& top : logprob.top) {
      EncodeToken(*tokenizer_, top.token_id, top.logprob, message->add_top());
    }
  }
}

v1::FinishReason EventEncoder::EncodeReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kDeadline:
      return v1::FINISH_REASON_DEADLINE;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void EventEncoder::EncodeStopMatch(const Finished& in, v1::StopMatch* out) {
  if (const auto* text = std::get_if<std::string>(&in.stop_match)) out->set_stop_string(*text);
  if (const auto* id = std::get_if<TokenId>(&in.stop_match)) out->set_stop_token_id(*id);
}

}  // namespace berth
