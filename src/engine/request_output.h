// One request as the output thread sees it: token ids become text, text becomes events.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "berth/event.h"
#include "engine/output_batch.h"
#include "engine/output_stream.h"
#include "engine/request_facts.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// Made by Submit and touched by the output thread alone from then on. Sends every event of the request.
class RequestOutput {
 public:
  // `tokenizer` must outlive it.
  RequestOutput(const Tokenizer* tokenizer, std::shared_ptr<const RequestFacts> facts, std::shared_ptr<EventSink> sink);

  TicketNumber ticket() const { return facts_->ticket; }

  void Admit(Admitted admitted);
  void AddPromptLogprob(const OutputRecord& record, std::span<const TopLogprob> top);
  // True where a stop string has just ended the choice and the engine does not know. Tokens that come for a choice that
  // has ended so are dropped: never shown, never counted.
  bool AddToken(const OutputRecord& record, std::span<const TopLogprob> top);
  // Sends the last event. An answer that is complete, since every choice has ended by a rule, is not taken back: it
  // completes even if the engine found a reason to end the request before it heard of that.
  void End(RequestEnd* end);

 private:
  struct Choice {
    OutputStream stream;
    bool echoed = false;
    bool finished = false;
  };

  bool AllFinished() const;
  void FinishAtDeadline();

  const Tokenizer* const tokenizer_;
  const std::shared_ptr<const RequestFacts> facts_;
  const std::shared_ptr<EventSink> sink_;
  std::vector<Choice> choices_;  // from Admit on
  std::vector<TokenLogprob> prompt_logprobs_;
};

}  // namespace berth
