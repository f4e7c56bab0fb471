// What the sampling kernels are given: logits to tokens and log-probabilities.
#pragma once

#include <cstdint>

namespace berth::cuda {

// Ids that belong to a row: a part of SamplingParams::ids.
struct SamplingIds {
  std::int32_t begin;
  std::int32_t count;
};

// As SamplingSpec and SamplingInput of berth/step.h, which say what each means.
struct SamplingRow {
  float temperature;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  std::int32_t top_k;
  std::int32_t choice_index;
  std::uint64_t seed;
  std::int64_t position;       // of the token to draw
  std::int32_t target;         // its log-probability is wanted and nothing is drawn; or -1
  std::int32_t top_logprobs;   // how many of the most likely tokens; -1: no log-probability at all
  std::int32_t top_begin;      // where they go in SamplingParams::top_ids
  std::int32_t prompt_tokens;  // how many of `history` are the prompt
  SamplingIds history;         // empty where no penalty is on: then nobody reads it
  SamplingIds banned;          // sorted
  SamplingIds bias;            // their values are at the same places of SamplingParams::biases
  // The last id of the history is not in `ids` but is token_ids[last_token] on the device: drawn by the step before.
  // -1: all are in `ids`.
  std::int32_t last_token;
};

// Each row of logits alone: the token that berth::Sampler draws, up to the rounding of sums (src/runner/sampler.h says
// how ties, NaN and infinities count), and log-probabilities as berth::LogSoftmax. Sums are taken in whole numbers, so
// that a result depends on its row alone.
struct SamplingParams {
  // [num_rows, vocab_size]. Bias, penalties and bans change them, after their log-probabilities are taken.
  float* logits;
  const SamplingRow* rows;  // no two rows' parts of `ids` overlap, nor their parts of `top_ids`
  const std::int32_t* ids;
  const float* biases;
  const std::int32_t* token_ids;  // of the step
  float* raw_logits;              // scratch as long as `ids`, for rows with a log-probability that have any of these
  std::int32_t* tokens;           // [num_rows]: drawn, or the target
  float* logprobs;                // [num_rows]; written where a row has a target or top_logprobs is not -1
  std::int32_t* top_ids;          // from a row's top_begin on, best first, lower id first on ties
  float* top_logprobs;            // at the same places
  std::int32_t num_rows;
  std::int32_t vocab_size;  // at most kMaxSamplingVocab
};
inline constexpr std::int32_t kMaxSamplingVocab = 1 << 18;

// Tokens drawn by one step go into the next one's: token_ids[token_index[i]] = drawn[logit_row[i]].
struct CarryTokensParams {
  const std::int32_t* token_index;  // [num_tokens], none twice
  const std::int32_t* logit_row;    // [num_tokens]
  const std::int32_t* drawn;        // SamplingParams::tokens of the step before
  std::int32_t* token_ids;
  std::int32_t num_tokens;
};

}  // namespace berth::cuda
