// One request of the threaded simulation: what it asks, what it heard, and whether that is what it must hear.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "berth/event.h"
#include "berth/metrics.h"
#include "berth/request.h"
#include "scenario.h"
#include "tokenizer/tokenizer.h"

namespace berth::simulation {

// Hears the events on the output thread; everybody else looks at it only once ended() is true.
class WatchedRequest final : public EventSink {
 public:
  // `origin`: the time at which the scenario begins. What the scenario leaves open is drawn: how its choices come to
  // stop, by a token, by a text or by their length.
  WatchedRequest(const Event& event, std::string id, TimePoint origin, const Tokenizer& tokenizer,
                 std::mt19937_64* random);

  TokenizedRequest MakeRequest(TimePoint now) const;
  const GenerateSpec& spec() const { return spec_; }

  // Before Submit: calls `cancel` when so many tokens were heard.
  void CancelAt(std::int64_t tokens, std::function<void()> cancel);
  void NoteCancelled() { cancelled_ = true; }
  // Before Submit: told of the end, before anybody finds that it has ended.
  void set_on_end(std::function<void(const RequestEnded& request)> on_end) { on_end_ = std::move(on_end); }

  void OnEvent(StreamEvent event) override;
  bool ended() const { return ended_; }
  // REQUIRES: ended().
  bool completed() const { return completed_.has_value(); }
  bool admitted() const { return admitted_; }
  const Usage& usage() const { return completed_.has_value() ? completed_->usage : failed_->usage; }
  std::vector<std::int64_t> tokens_by_choice() const;

  // What may end a request of this run, beside its own doing.
  struct Circumstances {
    bool faults = false;
    bool policy_changes = false;
    bool draining = false;
  };
  // REQUIRES: ended(). What it should not have heard; empty = all is well.
  std::string Violation(const Circumstances& circumstances, const Tokenizer& tokenizer) const;

 private:
  struct Choice {
    std::vector<TokenId> tokens;
    std::string text;
    std::optional<Finished> finished;
  };
  // What a choice alone must put out.
  struct Expected {
    std::vector<TokenId> tokens;
    std::string text;          // of the tokens
    std::string stopped_text;  // of the answer
    FinishReason reason = FinishReason::kLength;
  };

  // As the frontend tells it to the metrics.
  RequestEnded End() const;
  void Bad(const std::string& what);
  void Hear(const Admitted& admitted);
  void Hear(TokenDelta delta);
  void Hear(const Finished& finished);
  void Hear(const Completed& completed);
  void Hear(const Failed& failed);
  Expected ExpectedOf(std::int32_t choice, const Tokenizer& tokenizer) const;
  std::string ChoiceViolation(std::int32_t choice, const Tokenizer& tokenizer) const;
  std::string FailureViolation(const Circumstances& circumstances) const;

  GenerateSpec spec_;
  std::vector<TokenId> prompt_;
  std::int64_t cancel_at_ = 0;
  std::function<void()> cancel_;
  std::function<void(const RequestEnded& request)> on_end_;
  std::atomic<bool> cancelled_ = false;

  // The output thread's until ended_.
  bool admitted_ = false;
  FinishReason last_finish_ = FinishReason::kLength;
  std::vector<Choice> choices_;
  std::int64_t tokens_ = 0;
  std::optional<Failed> failed_;
  std::optional<Completed> completed_;
  std::string violation_;
  std::atomic<bool> ended_ = false;
};

}  // namespace berth::simulation
