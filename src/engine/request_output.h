// One request as the output thread sees it: token ids become text, text becomes events.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "berth/clock.h"
#include "berth/event.h"
#include "berth/metrics.h"
#include "engine/output_batch.h"
#include "engine/output_listener.h"
#include "engine/output_stream.h"
#include "engine/request_facts.h"
#include "tokenizer/tokenizer.h"

namespace berth {

struct TokenTimes {
  TimePoint drawn;  // when the step ended
  TimePoint shown;  // when the caller gets to see it
};

// Made by Submit and touched by the output thread alone from then on. Sends every event of the request.
class RequestOutput {
 public:
  // `tokenizer` must outlive it.
  RequestOutput(const Tokenizer* tokenizer, std::shared_ptr<const RequestFacts> facts, std::shared_ptr<EventSink> sink);

  void Admit(Admitted admitted);
  void AddPromptLogprob(const OutputRecord& record, std::span<const TopLogprob> top);
  // Tells `listener` where a stop string has just ended the choice. Tokens that come for a choice that has ended so are
  // dropped: never shown, never counted. Those that are shown are added to `came`.
  void AddToken(const OutputRecord& record, std::span<const TopLogprob> top, const TokenTimes& times,
                OutputListener* listener, std::vector<TokenCame>* came);
  // Sends the last event. An answer that is complete, since every choice has ended by a rule, is not taken back: it
  // completes even if the engine found a reason to end the request before it heard of that.
  void End(RequestEnd* end);

 private:
  struct Choice {
    OutputStream stream;
    std::optional<TimePoint> last_token = {};
    bool echoed = false;
    bool finished = false;
    bool sufficient = false;  // has what its class requires before the deadline
  };

  TokenCame NoteToken(TimePoint shown, Choice* choice);
  void NoteProgress(TimePoint drawn, Choice* choice);
  std::optional<bool> MetDeadline(const RequestEnd& end) const;
  bool AllFinished() const;
  void FinishAtDeadline();

  const Tokenizer* const tokenizer_;
  const std::shared_ptr<const RequestFacts> facts_;
  const std::shared_ptr<EventSink> sink_;
  std::vector<Choice> choices_;  // from Admit on
  bool has_token_ = false;
  std::int32_t sufficient_choices_ = 0;
  std::optional<TimePoint> sufficient_at_;  // when the last of them was
  std::vector<TokenLogprob> prompt_logprobs_;
};

}  // namespace berth
