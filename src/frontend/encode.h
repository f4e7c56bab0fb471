// The project's events in wire messages.
#pragma once

#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/event.h"
#include "berth/request.h"
#include "berth/v1/inference.pb.h"
#include "tokenizer/tokenizer.h"

namespace berth {

void EncodeDuration(Duration in, google::protobuf::Duration* out);
void EncodeUsage(const Usage& in, v1::Usage* out);
void EncodeRefusal(const Refusal& in, v1::RefusalInfo* out);

// The bytes a token stands for, for people: its piece, or for a control token its spelling.
std::string_view ShownPiece(const Tokenizer& tokenizer, TokenId id);

// Writes one request's events as its OutputSpec asks for them. Immutable; thread-safe.
class EventEncoder {
 public:
  // `tokenizer` must outlive the encoder. `service_class`: the name of the request's class.
  EventEncoder(const Tokenizer* tokenizer, const OutputSpec& output, std::string service_class);

  void Encode(const Admitted& in, v1::Admitted* out) const;
  // False where the caller would get an empty delta: its text is held back still, and its ids were not asked for.
  bool Shows(const TokenDelta& in) const {
    return !in.text.empty() || !in.logprobs.empty() || (return_token_ids_ && !in.token_ids.empty());
  }
  // Appends, so that several deltas of one choice become one. `Out` is v1::TokenDelta or v1::Choice.
  template <typename Out>
  void Append(const TokenDelta& in, Out* out) const {
    out->set_index(in.index);
    out->mutable_text()->append(in.text);
    if (return_token_ids_) out->mutable_token_ids()->Add(in.token_ids.begin(), in.token_ids.end());
    EncodeLogprobs(in.logprobs, out->mutable_logprobs());
  }
  // `Out` is v1::Finished or v1::Choice.
  template <typename Out>
  void Encode(const Finished& in, Out* out) const {
    out->set_index(in.index);
    out->set_finish_reason(EncodeReason(in.reason));
    if (in.stop_match.index() != 0) EncodeStopMatch(in, out->mutable_stop_match());
  }
  // `Out` is v1::Completed or v1::GenerateResponse.
  template <typename Out>
  void Encode(const Completed& in, Out* out) const {
    EncodeUsage(in.usage, out->mutable_usage());
    EncodeLogprobs(in.prompt_logprobs, out->mutable_prompt_logprobs());
  }

 private:
  using Logprobs = google::protobuf::RepeatedPtrField<v1::TokenLogprob>;
  void EncodeLogprobs(const std::vector<TokenLogprob>& in, Logprobs* out) const;
  static v1::FinishReason EncodeReason(FinishReason reason);
  static void EncodeStopMatch(const Finished& in, v1::StopMatch* out);

  const Tokenizer* const tokenizer_;
  const bool return_token_ids_;
  const std::string service_class_;
};

}  // namespace berth
