// What one request may ask for at most, whatever else is going on.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "berth/admission.h"
#include "berth/kv.h"
#include "berth/request.h"

namespace berth {

// Plain constants; every method is a pure function of them and its arguments.
struct RequestLimits {
  std::int32_t vocab_size = 0;          // ids that both the tokenizer and the backend know
  std::int32_t max_context_tokens = 0;  // prompt + output
  KvPoolShape pool;

  // As Engine::EstimateDemand.
  std::variant<KvDemand, Refusal> EstimateDemand(std::int64_t prompt_tokens, const StoppingSpec& stopping) const;

  // Refuses what cannot be served at all: more than one choice, ids outside the vocabulary.
  std::optional<Refusal> Check(const TokenizedRequest& request) const;
};

}  // namespace berth
