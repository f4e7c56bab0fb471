#include "fakes/step_digest.h"

namespace berth::test {
namespace {

// FNV-1a, by 64-bit words.
class Digest {
 public:
  void Add(std::int64_t value) { digest_ = (digest_ ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL; }
  template <typename Range>
  void AddAll(const Range& range) {
    Add(std::ssize(range));
    for (const auto& value : range) Add(value);
  }
  std::uint64_t value() const { return digest_; }

 private:
  std::uint64_t digest_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::uint64_t DigestOf(const StepPlan& plan) {
  Digest digest;
  digest.Add(plan.step);
  for (const std::vector<SwapCopy>* swaps : {&plan.swap_out, &plan.swap_in}) {
    digest.Add(std::ssize(*swaps));
    for (const SwapCopy& copy : *swaps) {
      digest.Add(copy.block);
      digest.Add(copy.host_block);
    }
  }
  digest.Add(std::ssize(plan.block_copies));
  for (const BlockCopy& copy : plan.block_copies) {
    digest.Add(copy.from);
    digest.Add(copy.to);
  }
  digest.AddAll(plan.token_ids);
  digest.Add(std::ssize(plan.rows));
  for (const StepRow& row : plan.rows) {
    digest.Add(row.sequence);
    digest.Add(row.first_position);
    digest.Add(row.token_begin);
    digest.Add(row.num_tokens);
    digest.AddAll(std::span(plan.block_ids)
                      .subspan(static_cast<std::size_t>(row.block_begin), static_cast<std::size_t>(row.num_blocks)));
  }
  digest.Add(std::ssize(plan.logit_rows));
  for (const LogitRow& row : plan.logit_rows) {
    digest.Add(row.token_index);
    digest.Add(row.target);
    digest.Add(row.top_logprobs);
    digest.Add(row.sampling.choice_index);
    digest.Add(row.sampling.prompt_tokens);
    digest.AddAll(row.sampling.history);
    digest.AddAll(row.sampling.banned);
  }
  return digest.value();
}

}  // namespace berth::test
