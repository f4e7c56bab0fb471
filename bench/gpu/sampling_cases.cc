#include <algorithm>
#include <random>

#include "case.h"
#include "kernels/cuda/sampling.h"
#include "model_shapes.h"

namespace berth::bench {
namespace {

enum class Draw { kGreedy, kTopP, kPenaltiesAndLogprobs };

const char* NameOf(Draw draw) {
  switch (draw) {
    case Draw::kGreedy:
      return "sampling/greedy";
    case Draw::kTopP:
      return "sampling/top-p";
    case Draw::kPenaltiesAndLogprobs:
      return "sampling/penalties-logprobs";
  }
  return "?";
}

constexpr std::int32_t kHistoryTokens = 256;
constexpr std::int32_t kTopLogprobs = 5;

cuda::SamplingRow MakeRow(Draw draw, std::int32_t row, std::int32_t history_tokens) {
  cuda::SamplingRow result{};
  result.top_p = 1.0f;
  result.repetition_penalty = 1.0f;
  result.target = -1;
  result.top_logprobs = -1;
  result.last_token = -1;
  result.seed = static_cast<std::uint64_t>(row) + 1;
  if (draw == Draw::kGreedy) return result;
  result.temperature = 0.8f;
  result.top_p = 0.95f;
  if (draw == Draw::kTopP) return result;
  result.presence_penalty = 0.5f;
  result.frequency_penalty = 0.25f;
  result.top_logprobs = kTopLogprobs;
  result.top_begin = row * kTopLogprobs;
  result.history = {.begin = row * history_tokens, .count = history_tokens};
  return result;
}

Case SamplingCase(const ModelShape& model, std::int32_t rows, Draw draw) {
  const std::int64_t logits = std::int64_t{rows} * model.vocabulary;
  const auto make = [model, rows, draw, logits](Arena& arena) -> Launch {
    const std::int32_t history_tokens = std::min(kHistoryTokens, model.vocabulary);
    std::vector<cuda::SamplingRow> specs;
    std::vector<std::int32_t> ids;
    for (std::int32_t row = 0; row < rows; ++row) {
      specs.push_back(MakeRow(draw, row, history_tokens));
      for (std::int32_t i = 0; i < history_tokens; ++i) ids.push_back((row + i * 31) % model.vocabulary);
    }
    std::vector<float> pattern(64 * 1024 + 7);
    std::minstd_rand generator(6);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (float& value : pattern) value = normal(generator);
    const cuda::SamplingParams params{
        .logits = arena.Fill(logits, pattern),
        .rows = arena.Upload(specs),
        .ids = arena.Upload(ids),
        .biases = arena.Upload(std::vector<float>(ids.size())),
        .token_ids = arena.Upload(std::vector<std::int32_t>(static_cast<std::size_t>(rows))),
        .raw_logits = arena.Allocate<float>(static_cast<std::int64_t>(ids.size())),
        .tokens = arena.Allocate<std::int32_t>(rows),
        .logprobs = arena.Allocate<float>(rows),
        .top_ids = arena.Allocate<std::int32_t>(std::int64_t{rows} * kTopLogprobs),
        .top_logprobs = arena.Allocate<float>(std::int64_t{rows} * kTopLogprobs),
        .num_rows = rows,
        .vocab_size = model.vocabulary};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchSampling, params, stream); };
  };
  return {.name = std::string(NameOf(draw)) + "/" + model.name + "/rows" + std::to_string(rows),
          .cost = {.bytes = 4.0 * static_cast<double>(logits), .flops = 0},
          .make = make};
}

}  // namespace

void AddSampling(const Settings& settings, std::vector<Case>& cases) {
  const bool toy = settings.extent == Extent::kToy;
  for (const ModelShape& model : ModelsOf(settings.extent)) {
    for (const Draw draw : {Draw::kGreedy, Draw::kTopP, Draw::kPenaltiesAndLogprobs}) {
      for (const std::int32_t rows : toy ? std::vector<std::int32_t>{2} : std::vector<std::int32_t>{1, 32, 256}) {
        cases.push_back(SamplingCase(model, rows, draw));
      }
    }
  }
}

}  // namespace berth::bench
