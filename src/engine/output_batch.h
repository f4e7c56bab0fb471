// What the engine's thread tells the output thread: one list of records a turn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/units.h"

namespace berth {

class RequestOutput;

// The last that is told of a request. Its blocks, its place and its id are free by then.
struct RequestEnd {
  std::shared_ptr<RequestOutput> request;
  Usage usage;  // but for output_tokens, which the output thread counts
  // Absent: every choice has ended by a rule, or ends here because the deadline has passed.
  std::optional<Refusal> refusal;
  bool let_in = true;  // it waited or ran; false: refused as it came
};

struct OutputRecord {
  enum class Kind : std::uint8_t { kAdmitted, kPromptLogprob, kToken, kEnd };

  RequestOutput* request = nullptr;  // lives until its kEnd has been read
  Kind kind = Kind::kToken;
  bool ends_choice = false;  // kToken: the engine has ended the choice with it
  std::int32_t choice = 0;
  TokenId token = kNoToken;
  float logprob = 0.0F;
  std::int32_t top_begin = 0;  // into OutputBatch::top
  std::int32_t num_top = 0;
  std::unique_ptr<Admitted> admitted;
  std::unique_ptr<RequestEnd> end;
};

struct OutputBatch {
  std::vector<OutputRecord> records;  // those of a request in order
  std::vector<TopLogprob> top;
  TimePoint drawn_at{};  // when the step ended that drew its tokens

  bool empty() const { return records.empty(); }
  // Keeps the memory, so that a step in the steady state allocates nothing.
  void Clear() {
    records.clear();
    top.clear();
  }
};

}  // namespace berth
