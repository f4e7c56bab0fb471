#include "fakes/memory_backend.h"

#include <algorithm>
#include <set>
#include <utility>

namespace berth::test {
namespace {

constexpr TokenId kGarbage = -7;

}  // namespace

TokenId NextToken(std::uint64_t seed, std::int32_t choice, std::span<const TokenId> history) {
  std::uint64_t hash = seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(choice) + 1;
  for (const TokenId token : history) {
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3ULL;
    hash ^= hash >> 29;
  }
  return static_cast<TokenId>(hash % 1000);
}

MemoryBackend::MemoryBackend(const KvPoolShape& pool, std::int32_t max_step_tokens, std::int32_t max_steps_in_flight)
    : memory_(static_cast<std::size_t>(pool.num_blocks) * static_cast<std::size_t>(pool.block_tokens), kGarbage),
      host_memory_(static_cast<std::size_t>(pool.host_blocks) * static_cast<std::size_t>(pool.block_tokens), kGarbage) {
  info_.name = "memory";
  info_.pool = pool;
  info_.vocab_size = 1000;
  info_.max_step_tokens = max_step_tokens;
  info_.max_steps_in_flight = max_steps_in_flight;
}

void MemoryBackend::Complain(const std::string& what) {
  if (fault_.empty()) fault_ = what;
}

TokenId* MemoryBackend::Row(std::vector<TokenId>* memory, BlockId block) const {
  return memory->data() + static_cast<std::ptrdiff_t>(block) * info_.pool.block_tokens;
}

TokenId& MemoryBackend::Cell(const StepPlan& plan, const StepRow& row, std::int64_t position) {
  const std::int64_t width = info_.pool.block_tokens;
  const BlockId block = plan.block_ids[static_cast<std::size_t>(row.block_begin + position / width)];
  return memory_[static_cast<std::size_t>(block * width + position % width)];
}

absl::Status MemoryBackend::Submit(const StepPlan& plan) {
  if (std::ssize(in_flight_) >= info_.max_steps_in_flight) Complain("too many steps in flight");
  if (static_cast<std::int64_t>(plan.token_ids.size()) > info_.max_step_tokens) Complain("a step has too many tokens");
  if (plan.empty()) Complain("a step has nothing to do");
  CheckSwaps(plan);
  for (const StepRow& row : plan.rows) CheckRow(plan, row);
  CheckCarried(plan);
  in_flight_.push_back(
      {.plan = &plan, .behind_another = !in_flight_.empty(), .ran = false, .status = {}, .result = {}});
  if (notify_) notify_();
  return absl::OkStatus();
}

absl::Status MemoryBackend::Await(StepResult* result) {
  if (!in_flight_.front().ran) RunNext();
  absl::Status status = std::move(in_flight_.front().status);
  *result = std::move(in_flight_.front().result);
  in_flight_.pop_front();
  return status;
}

void MemoryBackend::RunNext() {
  const auto next = std::ranges::find(in_flight_, false, &Submitted::ran);
  next->status = Run(*next, &next->result);
  next->ran = true;
}

absl::Status MemoryBackend::Run(const Submitted& step, StepResult* result) {
  const StepPlan& plan = *step.plan;
  result->step = plan.step;
  result->busy = step_time_ ? step_time_(plan) : Duration(std::chrono::milliseconds(1));
  const bool doomed = step.behind_another && last_failed_;
  last_failed_ = doomed || std::exchange(fail_next_, false) || (fails_ && fails_(plan));
  if (last_failed_) {
    Scribble(plan);
    return absl::InternalError("the device failed");
  }
  CopyBlocks(plan);
  for (const StepRow& row : plan.rows) RunRow(plan, row);
  for (const LogitRow& logit : plan.logit_rows) result->logits.push_back(Answer(plan, logit));
  answers_ = result->logits;
  return absl::OkStatus();
}

LogitResult MemoryBackend::Answer(const StepPlan& plan, const LogitRow& logit) {
  LogitResult answer;
  answer.token = logit.target;
  if (logit.target != kNoToken) return answer;
  const auto row = std::ranges::find_if(plan.rows, [&](const StepRow& r) {
    return logit.token_index >= r.token_begin && logit.token_index < r.token_begin + r.num_tokens;
  });
  std::vector<TokenId> seen;
  for (std::int64_t p = 0; p <= row->first_position + logit.token_index - row->token_begin; ++p) {
    seen.push_back(Cell(plan, *row, p));
  }
  const std::span<const TokenId> history = logit.sampling.history;
  std::vector<TokenId> expected(history.begin(), history.end());
  const bool carried = plan.token_ids[static_cast<std::size_t>(logit.token_index)] == kNoToken;
  if (carried) expected.push_back(Token(plan, logit.token_index));
  if (seen != expected) Complain("a table does not show its sequence's history");
  answer.token = NextToken(logit.sampling.spec->seed, logit.sampling.choice_index, seen);
  return answer;
}

// As the step before drew it, where it is carried.
TokenId MemoryBackend::Token(const StepPlan& plan, std::int32_t index) const {
  const TokenId id = plan.token_ids[static_cast<std::size_t>(index)];
  if (id != kNoToken) return id;
  const auto carried = std::ranges::find(plan.carried_tokens, index, &CarriedToken::token_index);
  return answers_[static_cast<std::size_t>(carried->logit_row)].token;
}

// Every token that is not known is one that the step just before, still in flight, draws.
void MemoryBackend::CheckCarried(const StepPlan& plan) {
  if (std::ranges::count(plan.token_ids, kNoToken) != std::ssize(plan.carried_tokens)) {
    Complain("a step feeds a token that nobody draws");
  }
  std::int32_t last_index = -1;
  for (const CarriedToken& carried : plan.carried_tokens) {
    const std::vector<LogitRow>* rows = in_flight_.empty() ? nullptr : &in_flight_.back().plan->logit_rows;
    if (rows == nullptr || carried.logit_row < 0 || carried.logit_row >= std::ssize(*rows) ||
        (*rows)[static_cast<std::size_t>(carried.logit_row)].target != kNoToken) {
      Complain("a token is carried from where none is drawn");
    }
    if (carried.token_index <= last_index || carried.token_index >= std::ssize(plan.token_ids) ||
        plan.token_ids[static_cast<std::size_t>(carried.token_index)] != kNoToken) {
      Complain("a carried token has no place");
    }
    last_index = carried.token_index;
  }
}

// As step.h has it: a host block is named once, and no block that comes in goes out as well.
void MemoryBackend::CheckSwaps(const StepPlan& plan) {
  std::set<BlockId> host_blocks;
  std::set<BlockId> blocks;
  const auto check = [&](const SwapCopy& copy) {
    if (copy.block < 0 || copy.block >= info_.pool.num_blocks) Complain("a swap names a block outside the pool");
    if (copy.host_block < 0 || copy.host_block >= info_.pool.host_blocks)
      Complain("a swap goes beyond the host blocks");
    if (!host_blocks.insert(copy.host_block).second) Complain("two swaps of a step name one host block");
  };
  for (const SwapCopy& copy : plan.swap_out) {
    check(copy);
    blocks.insert(copy.block);
  }
  for (const SwapCopy& copy : plan.swap_in) {
    check(copy);
    if (!blocks.insert(copy.block).second) Complain("a block is swapped in that another swap of the step names");
    if (references_ && references_(copy.block) != 1) Complain("a block is swapped in that its sequence does not own");
  }
}

void MemoryBackend::Scribble(const StepPlan& plan) {
  const auto scribble = [&](TokenId* block) { std::fill_n(block, info_.pool.block_tokens, kGarbage); };
  for (const SwapCopy& copy : plan.swap_out) scribble(HostBlock(copy.host_block));
  for (const SwapCopy& copy : plan.swap_in) scribble(Block(copy.block));
  for (const BlockCopy& copy : plan.block_copies) scribble(Block(copy.to));
  for (const StepRow& row : plan.rows) {
    for (std::int32_t i = 0; i < row.num_tokens; ++i) Cell(plan, row, row.first_position + i) = kGarbage;
  }
}

void MemoryBackend::CopyBlocks(const StepPlan& plan) {
  const auto copy_block = [&](const TokenId* from, TokenId* to) { std::copy_n(from, info_.pool.block_tokens, to); };
  for (const SwapCopy& copy : plan.swap_out) copy_block(Block(copy.block), HostBlock(copy.host_block));
  for (const SwapCopy& copy : plan.swap_in) copy_block(HostBlock(copy.host_block), Block(copy.block));
  for (const BlockCopy& copy : plan.block_copies) copy_block(Block(copy.from), Block(copy.to));
}

void MemoryBackend::CheckRow(const StepPlan& plan, const StepRow& row) {
  const std::int64_t width = info_.pool.block_tokens;
  const std::int64_t end = row.first_position + row.num_tokens;
  if (row.num_tokens < 1 || row.num_blocks * width < end) return Complain("a row's table is too short");
  for (std::int64_t i = row.first_position / width; i * width < end; ++i) {
    const BlockId block = plan.block_ids[static_cast<std::size_t>(row.block_begin + i)];
    if (references_ && references_(block) != 1) Complain("a row writes to a block that it does not hold alone");
  }
}

void MemoryBackend::RunRow(const StepPlan& plan, const StepRow& row) {
  for (std::int32_t i = 0; i < row.num_tokens; ++i) {
    Cell(plan, row, row.first_position + i) = Token(plan, row.token_begin + i);
  }
}

}  // namespace berth::test
