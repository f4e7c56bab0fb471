#include "kernels/cuda/sampling.h"

#include "kernels/cuda/selection.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

constexpr int kMaxThreads = 1024;

struct SamplingMemory {
  SelectionMemory selection;
  double log_sum;
  float carried_raw;  // of the carried id, as SamplingParams::raw_logits
  int place;          // in `ids`
  bool all_banned;
};

// The first word of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), as
// berth::CounterUniform has it: key = seed, counter = (position, choice, 0).
__device__ std::uint32_t RandomWord(const SamplingRow& row) {
  const auto position = static_cast<std::uint64_t>(row.position);
  std::uint32_t counter[4] = {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                              static_cast<std::uint32_t>(row.choice_index), 0};
  auto key0 = static_cast<std::uint32_t>(row.seed);
  auto key1 = static_cast<std::uint32_t>(row.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter[0] = static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0;
    counter[1] = static_cast<std::uint32_t>(product1);
    counter[2] = static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1;
    counter[3] = static_cast<std::uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter[0];
}

__device__ bool IsPenalised(const SamplingRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f;
}

// The lowest id that is not banned. Each thread looks for itself: this is hardly ever asked for.
__device__ int LowestNotBanned(const SamplingParams& params, const SamplingIds& banned) {
  int lowest = 0;
  for (int i = 0; i < banned.count; ++i) {
    const int id = params.ids[banned.begin + i];
    if (id > lowest) break;
    if (id == lowest) ++lowest;
  }
  return lowest;
}

// One row's way from logits to a token. All threads of the block do each step together.
class RowSampler {
 public:
  __device__ RowSampler(const SamplingParams& params, SamplingMemory& shared)
      : params_(params),
        row_(params.rows[blockIdx.x]),
        banned_(row_.banned),
        shared_(shared),
        logits_(params.logits + static_cast<std::int64_t>(blockIdx.x) * params.vocab_size),
        selection_(shared.selection, logits_, params.vocab_size) {}

  __device__ void Run() {
    const bool has_target = row_.target >= 0;
    const bool wants_logprob = has_target || row_.top_logprobs >= 0;
    if (wants_logprob) Normalise();
    if (row_.top_logprobs > 0) WriteTop();
    if (has_target) {
      Write(row_.target, logits_[row_.target]);
      return;
    }
    DropBansOfAll();
    const bool adjusts = IsPenalised(row_) || banned_.count > 0 || row_.bias.count > 0;
    if (adjusts) {
      if (wants_logprob) KeepRaw();
      Adjust();
    }
    if (adjusts || !wants_logprob) TakeBest();
    const int token = Choose(adjusts || !wants_logprob);
    Write(token, wants_logprob ? RawLogit(token, adjusts) : 0.0f);
  }

 private:
  // ---- Log-probabilities, of the logits as they are.

  __device__ void TakeBest() {
    best_ = selection_.Best();
    highest_ = LogitOf(best_);
  }

  __device__ void Normalise() {
    TakeBest();
    selection_.Survey(highest_, 1.0f, 0.0f);
    raw_highest_ = highest_;
    if (threadIdx.x == 0) shared_.log_sum = log(static_cast<double>(selection_.total_mass()) * 0x1p-45);
    __syncthreads();
  }

  __device__ float LogProbability(float logit) const {
    if (!(logit > kMinusInfinity)) return kMinusInfinity;
    if (raw_highest_ == -kMinusInfinity) {
      return logit == raw_highest_ ? static_cast<float>(-shared_.log_sum) : kMinusInfinity;
    }
    return static_cast<float>((static_cast<double>(logit) - static_cast<double>(raw_highest_)) - shared_.log_sum);
  }

  // As many at a time as the list holds; within it, a token's place is the number of better ones.
  __device__ void WriteTop() {
    std::uint64_t end = std::uint64_t{1} << kRankBits;
    for (int begin = 0; begin < row_.top_logprobs; begin += SelectionMemory::kListTokens) {
      const int through = min(begin + SelectionMemory::kListTokens, row_.top_logprobs);
      const std::uint64_t last = selection_.Find(Quantity::kCount, static_cast<std::uint64_t>(through)).rank;
      const int listed = selection_.ListBetween(last, end);
      const std::uint64_t* list = shared_.selection.list;
      for (int i = static_cast<int>(threadIdx.x); i < listed; i += static_cast<int>(blockDim.x)) {
        int place = row_.top_begin + begin;
        for (int j = 0; j < listed; ++j) place += list[j] > list[i] ? 1 : 0;
        params_.top_ids[place] = IdOf(list[i]);
        params_.top_logprobs[place] = LogProbability(LogitOf(list[i]));
      }
      end = last;
    }
  }

  // ---- Bias, penalties, bans.

  __device__ void DropBansOfAll() {
    if (banned_.count < params_.vocab_size) return;
    if (threadIdx.x == 0) shared_.all_banned = LowestNotBanned(params_, banned_) >= params_.vocab_size;
    __syncthreads();
    if (shared_.all_banned) banned_.count = 0;
  }

  // Calls use(place in `ids`) for each of them.
  template <typename Use>
  __device__ static void ForEachPlace(const SamplingIds& ids, Use&& use) {
    for (int i = static_cast<int>(threadIdx.x); i < ids.count; i += static_cast<int>(blockDim.x)) use(ids.begin + i);
  }

  template <typename Use>
  __device__ void ForEachAdjusted(Use&& use) const {
    ForEachPlace(row_.bias, use);
    if (IsPenalised(row_)) ForEachPlace(row_.history, use);
    ForEachPlace(banned_, use);
  }

  __device__ bool CarriesPenalty() const { return IsPenalised(row_) && row_.last_token >= 0; }

  // What Adjust may overwrite.
  __device__ void KeepRaw() {
    ForEachAdjusted([this](int place) { params_.raw_logits[place] = logits_[params_.ids[place]]; });
    if (threadIdx.x == 0 && CarriesPenalty()) shared_.carried_raw = logits_[params_.token_ids[row_.last_token]];
    __syncthreads();
  }

  // The token's logit before Adjust.
  __device__ float RawLogit(int token, bool adjusted) {
    if (!adjusted) return logits_[token];
    constexpr int kNowhere = 0x7fffffff;
    if (threadIdx.x == 0) shared_.place = kNowhere;
    __syncthreads();
    ForEachAdjusted([this, token](int place) {
      if (params_.ids[place] == token) atomicMin(&shared_.place, place);
    });
    __syncthreads();
    if (shared_.place != kNowhere) return params_.raw_logits[shared_.place];
    if (CarriesPenalty() && params_.token_ids[row_.last_token] == token) return shared_.carried_raw;
    return logits_[token];
  }

  __device__ void Adjust() {
    ForEachPlace(row_.bias, [this](int place) { logits_[params_.ids[place]] += params_.biases[place]; });
    __syncthreads();
    if (IsPenalised(row_)) Penalise();
    ForEachPlace(banned_, [this](int place) { logits_[params_.ids[place]] = kMinusInfinity; });
    __syncthreads();
  }

  // A part of the vocabulary at a time: its uses are counted in shared memory, then its logits change.
  __device__ void Penalise() {
    constexpr int kPart = 2 * SelectionMemory::kListTokens;
    int* uses = shared_.selection.uses;  // 2 for each use in the output, 1 more where the prompt has it
    const int history = row_.history.count + (row_.last_token >= 0 ? 1 : 0);
    const int thread = static_cast<int>(threadIdx.x);
    const int threads = static_cast<int>(blockDim.x);
    for (int begin = 0; begin < params_.vocab_size; begin += kPart) {
      const int part = min(kPart, params_.vocab_size - begin);
      for (int i = thread; i < part; i += threads) uses[i] = 0;
      __syncthreads();
      for (int i = thread; i < history; i += threads) {
        const bool carried = i == row_.history.count;
        const int id = (carried ? params_.token_ids[row_.last_token] : params_.ids[row_.history.begin + i]) - begin;
        if (id < 0 || id >= part) continue;
        if (i < row_.prompt_tokens) {
          atomicMax(&uses[id], 1);  // leaves a 2 as it is, and so would adding 2 to a 1
        } else {
          atomicAdd(&uses[id], 2);
        }
      }
      __syncthreads();
      for (int i = thread; i < part; i += threads) {
        if (uses[i] != 0) logits_[begin + i] = Penalised(logits_[begin + i], uses[i] >> 1);
      }
      __syncthreads();
    }
  }

  __device__ float Penalised(float logit, int output_uses) const {
    const float repeated = logit > 0.0f ? logit / row_.repetition_penalty : __fmul_rn(logit, row_.repetition_penalty);
    if (output_uses == 0) return repeated;
    // Not to be contracted with the difference: berth::Sampler rounds both.
    const float frequency = __fmul_rn(row_.frequency_penalty, static_cast<float>(output_uses));
    return repeated - row_.presence_penalty - frequency;
  }

  // ---- The token.

  // survey: the selection has not seen these logits.
  __device__ int Choose(bool survey) {
    if (highest_ == kMinusInfinity) return LowestNotBanned(params_, banned_);
    if (row_.temperature <= 0.0f) return IdOf(best_);
    if (survey || row_.temperature != 1.0f || row_.min_p > 0.0f) {
      selection_.Survey(highest_, row_.temperature, row_.min_p);
    }
    TokenSums kept{selection_.total_mass(), 0};
    int token = 0;
    // One search in the code for all three.
#pragma unroll 1
    for (int cut = kTopK; cut <= kDraw; ++cut) {
      const std::uint64_t bound = BoundOf(cut, kept.mass);
      if (bound == 0) continue;
      const Selection::Last last = selection_.Find(cut == kTopK ? Quantity::kCount : Quantity::kMass, bound);
      kept = last.sums;
      token = IdOf(last.rank);
    }
    return token;
  }

  enum Cut { kTopK, kTopP, kDraw };

  // How many tokens, or which mass, are to be reached after the cuts before left this mass; 0: the cut is off.
  __device__ std::uint64_t BoundOf(int cut, std::uint64_t mass) const {
    switch (cut) {
      case kTopK:
        return row_.top_k < params_.vocab_size ? static_cast<std::uint64_t>(row_.top_k) : 0;
      case kTopP: {
        if (row_.top_p >= 1.0f) return 0;
        const double share = ceil(static_cast<double>(row_.top_p) * static_cast<double>(mass));
        return min(max(static_cast<std::uint64_t>(share), std::uint64_t{1}), mass);
      }
      default:
        break;
    }
    // The first token whose cumulative mass is above uniform · mass; uniform = word / 2³².
    if (row_.min_p > 0.0f) mass = min(mass, selection_.likely_mass());
    const std::uint64_t word = RandomWord(row_);
    return word * (mass >> 32) + (word * (mass & 0xffffffffu) >> 32) + 1;
  }

  __device__ void Write(int token, float raw_logit) const {
    if (threadIdx.x != 0) return;
    params_.tokens[blockIdx.x] = token;
    if (row_.target >= 0 || row_.top_logprobs >= 0) params_.logprobs[blockIdx.x] = LogProbability(raw_logit);
  }

  const SamplingParams& params_;
  const SamplingRow& row_;
  SamplingIds banned_;
  SamplingMemory& shared_;
  float* logits_;
  Selection selection_;
  std::uint64_t best_ = 0;
  float highest_ = 0.0f;
  float raw_highest_ = 0.0f;
};

// A block for each row.
__global__ void __launch_bounds__(kMaxThreads) SamplingKernel(const __grid_constant__ SamplingParams params) {
  BERTH_SHARED(SamplingMemory, shared);
  RowSampler(params, shared).Run();
}

__global__ void __launch_bounds__(kMaxThreads) CarryTokensKernel(const __grid_constant__ CarryTokensParams params) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < params.num_tokens) params.token_ids[params.token_index[i]] = params.drawn[params.logit_row[i]];
}

}  // namespace

cudaError_t LaunchSampling(const SamplingParams& params, cudaStream_t stream) {
  if (params.vocab_size < 1 || params.vocab_size > kMaxSamplingVocab) return cudaErrorInvalidValue;
  if (params.num_rows == 0) return cudaSuccess;
  // Few threads meet in a barrier sooner than many; many read a long row sooner.
  constexpr int kLongRow = 8192;
  const unsigned threads = params.vocab_size < kLongRow ? kMaxThreads / 8 : kMaxThreads;
  return gpu::Launch(SamplingKernel, dim3(static_cast<unsigned>(params.num_rows)), dim3(threads), 0, stream, params);
}

cudaError_t LaunchCarryTokens(const CarryTokensParams& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return cudaSuccess;
  constexpr unsigned kThreads = 256;
  const unsigned blocks = (static_cast<unsigned>(params.num_tokens) + kThreads - 1) / kThreads;
  return gpu::Launch(CarryTokensKernel, dim3(blocks), dim3(kThreads), 0, stream, params);
}

}  // namespace berth::cuda
