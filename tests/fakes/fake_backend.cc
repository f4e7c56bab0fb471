#include "fakes/fake_backend.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth::test {

TokenId HashedLetter(std::span<const TokenId> prompt, std::span<const TokenId> output) {
  std::uint64_t hash = 1469598103934665603ULL + output.size();
  for (const TokenId id : prompt) hash = (hash ^ static_cast<std::uint64_t>(id)) * 1099511628211ULL;
  hash = (hash ^ output.size()) * 1099511628211ULL;
  return 'a' + static_cast<TokenId>((hash >> 17) % 26);
}

NextToken Script(std::vector<TokenId> script, TokenId then) {
  return [script = std::move(script), then](std::span<const TokenId>, std::span<const TokenId> output) {
    return output.size() < script.size() ? script[output.size()] : then;
  };
}

NextToken Script(std::string script, TokenId then) {
  std::vector<TokenId> ids;
  for (const char c : script) ids.push_back(static_cast<unsigned char>(c));
  return Script(std::move(ids), then);
}

float FakeLogprob(TokenId token) { return -0.5F - static_cast<float>(token) / 1024.0F; }

FakeBackend::FakeBackend(BackendInfo info, NextToken next_token, FakeClock* clock, Duration step_time)
    : info_(std::move(info)),
      next_token_(std::move(next_token)),
      clock_(clock),
      step_time_(step_time),
      memory_(static_cast<std::size_t>(info_.pool.num_blocks) * static_cast<std::size_t>(info_.pool.block_tokens),
              kNoToken) {}

absl::Status FakeBackend::Submit(const StepPlan& plan) {
  BERTH_CHECK_MSG(plan_ == nullptr, "one step at a time");
  BERTH_CHECK_MSG(plan.step == last_step_ + 1, "steps rise by one");
  last_step_ = plan.step;
  CheckPlan(plan);
  {
    const std::lock_guard lock(mutex_);
    for (const StepRow& row : plan.rows) {
      SeenStep seen{plan.step, row.sequence, row.first_position, row.num_tokens, row.num_blocks, {}};
      if (!plan.logit_rows.empty()) {
        const auto& banned = plan.logit_rows.back().sampling.banned;
        seen.banned.assign(banned.begin(), banned.end());
      }
      seen_.push_back(std::move(seen));
    }
    if (failing_submits_.contains(plan.step)) return absl::InternalError("submit was told to fail");
  }
  plan_ = &plan;
  if (notify_) notify_();
  return absl::OkStatus();
}

absl::Status FakeBackend::Await(StepResult* result) {
  BERTH_CHECK_MSG(plan_ != nullptr, "nothing was submitted");
  const StepPlan& plan = *std::exchange(plan_, nullptr);
  {
    std::unique_lock lock(mutex_);
    if (gate_closed_) {
      at_gate_ = true;
      gate_changed_.notify_all();
      gate_changed_.wait(lock, [this] { return !gate_closed_ || permits_ > 0; });
      if (permits_ > 0) --permits_;
      at_gate_ = false;
    }
    if (clock_ != nullptr) clock_->Advance(step_time_);
    if (failing_awaits_.contains(plan.step)) return absl::InternalError("await was told to fail");
  }
  for (const StepRow& row : plan.rows) Store(plan, row);
  result->step = plan.step;
  result->logits.clear();
  result->top.clear();
  result->busy = step_time_;
  for (const LogitRow& row : plan.logit_rows) result->logits.push_back(Answer(row, result));
  return absl::OkStatus();
}

void FakeBackend::CheckPlan(const StepPlan& plan) {
  const auto num_tokens = static_cast<std::int32_t>(plan.token_ids.size());
  const auto num_block_ids = static_cast<std::int32_t>(plan.block_ids.size());
  BERTH_CHECK(num_tokens >= 1 && num_tokens <= info_.max_step_tokens);
  for (const TokenId id : plan.token_ids) BERTH_CHECK(id >= 0 && id < info_.vocab_size);
  for (const BlockId id : plan.block_ids) BERTH_CHECK(id >= 0 && id < info_.pool.num_blocks);
  std::int32_t covered = 0;
  for (const StepRow& row : plan.rows) {
    BERTH_CHECK(row.token_begin == covered && row.num_tokens >= 1);
    covered += row.num_tokens;
    const std::int32_t end = row.first_position + row.num_tokens;
    BERTH_CHECK(end <= info_.max_context_tokens);
    BERTH_CHECK(row.block_begin >= 0 && row.block_begin + row.num_blocks <= num_block_ids);
    BERTH_CHECK(row.num_blocks >= CeilDiv(end, info_.pool.block_tokens));
    const auto it = sequences_.find(row.sequence);
    const std::size_t stored = it == sequences_.end() ? 0 : it->second.size();
    BERTH_CHECK_MSG(static_cast<std::size_t>(row.first_position) == stored, "positions must follow each other");
    const std::span table =
        std::span(plan.block_ids)
            .subspan(static_cast<std::size_t>(row.block_begin), static_cast<std::size_t>(row.num_blocks));
    BERTH_CHECK_MSG(std::set<BlockId>(table.begin(), table.end()).size() == table.size(), "a block twice in a table");
  }
  BERTH_CHECK(covered == num_tokens);
  std::int32_t last_index = -1;
  for (const LogitRow& row : plan.logit_rows) {
    BERTH_CHECK(row.token_index > last_index && row.token_index < num_tokens);
    last_index = row.token_index;
    if (row.target == kNoToken) {
      CheckSampling(row);
    } else {
      BERTH_CHECK(row.target >= 0 && row.target < info_.vocab_size && row.top_logprobs >= 0);
    }
  }
}

void FakeBackend::CheckSampling(const LogitRow& row) const {
  const SamplingInput& sampling = row.sampling;
  BERTH_CHECK(sampling.spec != nullptr);
  BERTH_CHECK(sampling.prompt_tokens >= 1 &&
              static_cast<std::size_t>(sampling.prompt_tokens) <= sampling.history.size());
  BERTH_CHECK(std::ranges::is_sorted(sampling.banned));
  for (const TokenId id : sampling.banned) BERTH_CHECK(id >= 0 && id < info_.vocab_size);
}

std::size_t FakeBackend::Slot(const StepPlan& plan, const StepRow& row, std::int32_t position) const {
  const auto block = plan.block_ids[static_cast<std::size_t>(row.block_begin + position / info_.pool.block_tokens)];
  return static_cast<std::size_t>(block) * static_cast<std::size_t>(info_.pool.block_tokens) +
         static_cast<std::size_t>(position % info_.pool.block_tokens);
}

void FakeBackend::Store(const StepPlan& plan, const StepRow& row) {
  std::vector<TokenId>& sequence = sequences_[row.sequence];
  for (std::int32_t i = 0; i < row.num_tokens; ++i) {
    const TokenId token = plan.token_ids[static_cast<std::size_t>(row.token_begin + i)];
    memory_[Slot(plan, row, row.first_position + i)] = token;
    sequence.push_back(token);
  }
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    BERTH_CHECK_MSG(memory_[Slot(plan, row, static_cast<std::int32_t>(i))] == sequence[i],
                    "a stored token was overwritten, or its block has moved");
  }
}

LogitResult FakeBackend::Answer(const LogitRow& row, StepResult* result) const {
  LogitResult answer;
  answer.token = row.target;
  if (row.target == kNoToken) {
    const SamplingInput& sampling = row.sampling;
    const auto prompt_tokens = static_cast<std::size_t>(sampling.prompt_tokens);
    answer.token = next_token_(sampling.history.first(prompt_tokens), sampling.history.subspan(prompt_tokens));
    while (std::ranges::binary_search(sampling.banned, answer.token)) {
      answer.token = (answer.token + 1) % info_.vocab_size;
    }
  }
  answer.logprob = FakeLogprob(answer.token);
  answer.top_begin = static_cast<std::int32_t>(result->top.size());
  answer.num_top = std::max(0, row.top_logprobs);
  for (TokenId id = 0; id < answer.num_top; ++id) result->top.push_back({id, FakeLogprob(id)});
  return answer;
}

void FakeBackend::CloseGate() {
  const std::lock_guard lock(mutex_);
  gate_closed_ = true;
}

void FakeBackend::WaitForStepAtGate() {
  std::unique_lock lock(mutex_);
  gate_changed_.wait(lock, [this] { return at_gate_ && permits_ == 0; });
}

void FakeBackend::LetOneStepGo() {
  const std::lock_guard lock(mutex_);
  ++permits_;
  gate_changed_.notify_all();
}

void FakeBackend::OpenGate() {
  const std::lock_guard lock(mutex_);
  gate_closed_ = false;
  gate_changed_.notify_all();
}

void FakeBackend::FailSubmit(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  failing_submits_.insert(step);
}

void FakeBackend::FailAwait(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  failing_awaits_.insert(step);
}

std::vector<SeenStep> FakeBackend::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

}  // namespace berth::test
