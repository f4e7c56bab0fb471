// The first tokens of a row of logits (highest logit first, lower id first on ties) up to a number of them or up to a
// share of the probability, found without a sort: a histogram over logits says in which bin the last of them lies, and
// a radix search looks for it there. Device code; all threads of a block work on one row.
//
// Weights are whole numbers of 2⁻⁴⁵, so that their sums are the same in whatever order the threads come.
#pragma once

#include <cstdint>

#include "kernels/gpu.h"

namespace berth::cuda {

constexpr float kMinusInfinity = -__builtin_huge_valf();

// A token's place in the order: the higher, the better. Its upper half has the logit, with -0 as 0 and NaN as minus
// infinity.
inline constexpr int kIdBits = 24;
inline constexpr int kRankBits = 32 + kIdBits;
inline constexpr std::uint32_t kLastId = (1u << kIdBits) - 1;

__device__ inline std::uint64_t RankOf(float logit, int id) {
  const std::uint32_t bits = __float_as_uint((logit > kMinusInfinity ? logit : kMinusInfinity) + 0.0f);
  const std::uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(ordered) << kIdBits | (kLastId - static_cast<std::uint32_t>(id));
}

__device__ inline int IdOf(std::uint64_t rank) {
  return static_cast<int>(kLastId - (static_cast<std::uint32_t>(rank) & kLastId));
}

__device__ inline float LogitOf(std::uint64_t rank) {
  const auto ordered = static_cast<std::uint32_t>(rank >> kIdBits);
  return __uint_as_float(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}

// Calls use(logit, id) for each element of the row, 16 bytes at a time and two of them in flight.
template <typename Use>
__device__ inline void ForEachLogit(const float* row, int size, Use&& use) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const auto misplaced = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) / sizeof(float) % 4);
  const int head = min((4 - misplaced) % 4, size);
  const int vectors = (size - head) / 4;
  const int edges = size - 4 * vectors;
  if (thread < edges) {
    const int id = thread < head ? thread : 4 * vectors + thread;
    use(row[id], id);
  }
  const auto* from = reinterpret_cast<const float4*>(row + head);
#pragma unroll 1
  for (int i = thread; i < vectors; i += 2 * threads) {
    const bool second = i + threads < vectors;
    float4 now = from[i];
    const float4 next = second ? from[i + threads] : float4{};
    int id = head + 4 * i;
#pragma unroll 1
    for (int part = second ? 2 : 1; part > 0; --part) {
      use(now.x, id);
      use(now.y, id + 1);
      use(now.z, id + 2);
      use(now.w, id + 3);
      now = next;
      id += 4 * threads;
    }
  }
}

// A token's distance from the row's highest logit, in halvings of its probability at the temperature.
struct Distance {
  float highest;
  float per_logit;  // log2(e) / temperature

  // 0 for every token at the highest, infinite ones too.
  __device__ float Of(float logit) const {
    const float number = logit > kMinusInfinity ? logit : kMinusInfinity;
    return number >= highest ? 0.0f : (highest - number) * per_logit;
  }
};

__device__ inline std::uint64_t MassAt(float distance) {
  constexpr float kUnit = 0x1p45f;
  return static_cast<std::uint64_t>(gpu::Exp2(-distance) * kUnit);
}

inline constexpr int kBins = 256;

// The last bin is of tokens too far to have any mass, and has most of them.
__device__ inline int BinAt(float distance) {
  constexpr float kBinsPerHalving = 5.0f;
  const float bin = distance * kBinsPerHalving;
  return bin < static_cast<float>(kBins - 1) ? static_cast<int>(bin) : kBins - 1;
}

struct TokenSums {
  std::uint64_t mass;
  std::uint32_t count;
};

enum class Quantity { kCount, kMass };

__device__ inline std::uint64_t AmountOf(Quantity quantity, const TokenSums& sums) {
  return quantity == Quantity::kCount ? sums.count : sums.mass;
}

// Sums by bin, best first. Neighbours are in different banks, and so are the first bins of all lanes in FindBin.
struct Histogram {
  static constexpr int kSlots = kBins + kBins / 32;
  __device__ static int Slot(int bin) { return bin + bin / 32; }

  std::uint32_t counts[kSlots];
  std::uint32_t low_masses[kSlots];
  std::uint32_t high_masses[kSlots];
};

// A thread's way into a histogram: neighbouring tokens are often in one bin, and are then added together.
class Tally {
 public:
  __device__ explicit Tally(Histogram& histogram) : histogram_(histogram) {}

  __device__ void Add(int bin, std::uint64_t mass) {
    if (bin != bin_) {
      Flush();
      bin_ = bin;
    }
    sums_.mass += mass;
    ++sums_.count;
  }

  __device__ void Flush() {
    if (sums_.count == 0) return;
    const int slot = Histogram::Slot(bin_);
    atomicAdd(&histogram_.counts[slot], sums_.count);
    // Shared memory adds 32 bits at once: whoever makes the lower half overflow carries.
    const auto low = static_cast<std::uint32_t>(sums_.mass);
    auto high = static_cast<std::uint32_t>(sums_.mass >> 32);
    if (low != 0 && atomicAdd(&histogram_.low_masses[slot], low) + low < low) ++high;
    if (high != 0) atomicAdd(&histogram_.high_masses[slot], high);
    sums_ = {};
  }

 private:
  Histogram& histogram_;
  TokenSums sums_{};
  int bin_ = -1;
};

// Where a sum over bins reaches a bound.
struct Crossing {
  TokenSums before;  // of the bins before
  std::uint32_t inside;
  int bin;
};

// What a selection needs of shared memory.
struct SelectionMemory {
  static constexpr int kListTokens = 4096;

  Histogram distances;
  Histogram digits;
  union {
    std::uint64_t list[kListTokens];
    int uses[2 * kListTokens];  // for whoever needs memory while there is no list
  };
  std::uint64_t of_warp[gpu::kWarpThreads];
  std::uint64_t found;
  Crossing crossing;
  int listed;
};

// op over the block's threads, in each of them. All must come.
template <typename Op>
__device__ inline std::uint64_t BlockReduce(SelectionMemory& shared, std::uint64_t value, Op op) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(gpu::kAllLanes, value, distance));
  }
  const unsigned lane = threadIdx.x % gpu::kWarpThreads;
  __syncthreads();  // the last reduction has been read
  if (lane == 0) shared.of_warp[threadIdx.x / gpu::kWarpThreads] = value;
  __syncthreads();
  value = lane < blockDim.x / gpu::kWarpThreads ? shared.of_warp[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(gpu::kAllLanes, value, distance));
  }
  return value;
}

__device__ inline std::uint64_t BlockMax(SelectionMemory& shared, std::uint64_t value) {
  return BlockReduce(shared, value, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
}

__device__ inline std::uint64_t BlockSum(SelectionMemory& shared, std::uint64_t value) {
  return BlockReduce(shared, value, [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

class Selection {
 public:
  // The last of the selected tokens.
  struct Last {
    std::uint64_t rank;
    TokenSums sums;  // of all that are selected
  };

  __device__ Selection(SelectionMemory& shared, const float* row, int size) : shared_(shared), row_(row), size_(size) {}

  // The best token's rank; that of a token at minus infinity where there is none above.
  __device__ std::uint64_t Best() const {
    float best = kMinusInfinity;
    int best_id = static_cast<int>(kLastId);
    ForEachLogit(row_, size_, [&](float logit, int id) {
      if (logit > best || (logit == best && id < best_id)) {
        best = logit;
        best_id = id;
      }
    });
    return BlockMax(shared_, RankOf(best, best_id));
  }

  // Fills the histogram of distances. highest: of the row. temperature > 0.
  __device__ void Survey(float highest, float temperature, float min_p) {
    constexpr float kLog2E = 1.44269504f;
    distance_ = {highest, kLog2E / temperature};
    first_listed_ = kBins;
    Clear(shared_.distances);
    __syncthreads();
    std::uint64_t total = 0;
    std::uint64_t likely = 0;
    Tally tally(shared_.distances);
    ForEachLogit(row_, size_, [&](float logit, int) {
      const float distance = distance_.Of(logit);
      const std::uint64_t mass = MassAt(distance);
      total += mass;
      if (gpu::Exp2(-distance) >= min_p) likely += mass;
      tally.Add(BinAt(distance), mass);
    });
    tally.Flush();
    total_mass_ = BlockSum(shared_, total);
    likely_mass_ = BlockSum(shared_, likely);
  }

  // In units of 2⁻⁴⁵ of the best token's weight. likely: of those at least min_p times as likely as it.
  __device__ std::uint64_t total_mass() const { return total_mass_; }
  __device__ std::uint64_t likely_mass() const { return likely_mass_; }

  // The shortest beginning of the order whose count or mass reaches the bound. 1 ≤ bound ≤ that of the whole row.
  __device__ Last Find(Quantity quantity, std::uint64_t bound) {
    Crossing at = FindBin(shared_.distances, quantity, bound);
    const int bin = at.bin;
    List(at);
    TokenSums before = at.before;
    std::uint64_t prefix = 0;
    int shift = kRankBits;
    while (at.inside > 1) {
      shift -= kDigitBits;
      Clear(shared_.digits);
      __syncthreads();
      Tally tally(shared_.digits);
      ForEachInBin(bin, [&](std::uint64_t rank, float distance) {
        if (rank >> shift >> kDigitBits != prefix) return;
        tally.Add(kBins - 1 - static_cast<int>(rank >> shift & (kBins - 1)), MassAt(distance));
      });
      tally.Flush();
      at = FindBin(shared_.digits, quantity, bound - AmountOf(quantity, before));
      prefix = prefix << kDigitBits | static_cast<std::uint64_t>(kBins - 1 - at.bin);
      before.mass += at.before.mass;
      before.count += at.before.count;
    }
    ForEachInBin(bin, [&](std::uint64_t rank, float) {
      if (rank >> shift == prefix) shared_.found = rank;
    });
    __syncthreads();
    const std::uint64_t rank = shared_.found;
    return {rank, {before.mass + MassAt(distance_.Of(LogitOf(rank))), before.count + 1}};
  }

  // Puts the tokens from rank `last` up to before rank `end`, at most kListTokens, into the shared list, in any order.
  __device__ int ListBetween(std::uint64_t last, std::uint64_t end) {
    first_listed_ = kBins;
    return ListWhere([&](std::uint64_t rank, float) { return rank >= last && rank < end; });
  }

 private:
  static constexpr int kDigitBits = 8;
  static_assert(1 << kDigitBits == kBins && kRankBits % kDigitBits == 0);

  __device__ static void Clear(Histogram& histogram) {
    for (unsigned slot = threadIdx.x; slot < Histogram::kSlots; slot += blockDim.x) {
      histogram.counts[slot] = 0;
      histogram.low_masses[slot] = 0;
      histogram.high_masses[slot] = 0;
    }
  }

  __device__ static TokenSums SumsOf(const Histogram& histogram, int bin) {
    const int slot = Histogram::Slot(bin);
    return {static_cast<std::uint64_t>(histogram.high_masses[slot]) << 32 | histogram.low_masses[slot],
            histogram.counts[slot]};
  }

  // The first bin at which the sum over it and those before reaches the bound, which some bin does.
  __device__ Crossing FindBin(const Histogram& histogram, Quantity quantity, std::uint64_t bound) {
    __syncthreads();  // the histogram is full, the last crossing has been read
    if (threadIdx.x < gpu::kWarpThreads) {
      constexpr int kOfLane = kBins / static_cast<int>(gpu::kWarpThreads);
      const int lane = static_cast<int>(threadIdx.x);
      TokenSums own{};
      for (int i = 0; i < kOfLane; ++i) {
        const TokenSums sums = SumsOf(histogram, lane * kOfLane + i);
        own.mass += sums.mass;
        own.count += sums.count;
      }
      TokenSums through = own;
#pragma unroll
      for (int distance = 1; distance < static_cast<int>(gpu::kWarpThreads); distance *= 2) {
        const std::uint64_t mass = __shfl_up_sync(gpu::kAllLanes, through.mass, distance);
        const std::uint32_t count = __shfl_up_sync(gpu::kAllLanes, through.count, distance);
        if (lane < distance) continue;
        through.mass += mass;
        through.count += count;
      }
      TokenSums before = {through.mass - own.mass, through.count - own.count};
      if (AmountOf(quantity, before) < bound && bound <= AmountOf(quantity, through)) {
        int bin = lane * kOfLane;
        TokenSums sums = SumsOf(histogram, bin);
        while (AmountOf(quantity, before) + AmountOf(quantity, sums) < bound) {
          before.mass += sums.mass;
          before.count += sums.count;
          sums = SumsOf(histogram, ++bin);
        }
        shared_.crossing = {before, sums.count, bin};
      }
    }
    __syncthreads();
    return shared_.crossing;
  }

  // Lists the crossing's bin, with all the bins before if there is room: later searches mostly end among them.
  __device__ void List(const Crossing& at) {
    if (first_listed_ <= at.bin && at.bin <= last_listed_) return;
    if (at.inside > SelectionMemory::kListTokens) {
      first_listed_ = kBins;
      return;
    }
    const bool all = at.before.count + at.inside <= SelectionMemory::kListTokens;
    first_listed_ = all ? 0 : at.bin;
    last_listed_ = at.bin;
    ListWhere([&](std::uint64_t, float distance) {
      const int bin = BinAt(distance);
      return first_listed_ <= bin && bin <= last_listed_;
    });
  }

  // Since anybody read the list there has been a barrier.
  template <typename Wanted>
  __device__ int ListWhere(Wanted&& wanted) {
    if (threadIdx.x == 0) shared_.listed = 0;
    __syncthreads();
    ForEachLogit(row_, size_, [&](float logit, int id) {
      const std::uint64_t rank = RankOf(logit, id);
      if (wanted(rank, distance_.Of(logit))) shared_.list[atomicAdd(&shared_.listed, 1)] = rank;
    });
    __syncthreads();
    return shared_.listed;
  }

  // Calls use(rank, distance) for each of the bin's tokens, from the list if they are there.
  template <typename Use>
  __device__ void ForEachInBin(int bin, Use&& use) const {
    const auto use_of_bin = [&](std::uint64_t rank, float distance) {
      if (BinAt(distance) == bin) use(rank, distance);
    };
    if (first_listed_ <= bin && bin <= last_listed_) {
      const int listed = shared_.listed;
      for (int i = static_cast<int>(threadIdx.x); i < listed; i += static_cast<int>(blockDim.x)) {
        use_of_bin(shared_.list[i], distance_.Of(LogitOf(shared_.list[i])));
      }
    } else {
      ForEachLogit(row_, size_, [&](float logit, int id) { use_of_bin(RankOf(logit, id), distance_.Of(logit)); });
    }
  }

  SelectionMemory& shared_;
  const float* row_;
  int size_;
  Distance distance_{};
  std::uint64_t total_mass_ = 0;
  std::uint64_t likely_mass_ = 0;
  int first_listed_ = kBins;  // bins whose tokens are in the list: none
  int last_listed_ = 0;
};

}  // namespace berth::cuda
