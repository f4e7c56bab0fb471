// The attention kernels over the Vec of the including file's instruction set (simd/vec_*.h, included before this).
// Internal linkage throughout: see there.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"

namespace berth::cpu {
namespace {

// From so many rows on, transposing a chunk's keys once costs less than summing lanes for every row.
constexpr int kRowsWorthTransposing = 8;
constexpr int kChunk = kAttentionChunkTokens;
constexpr int kAheadRows = 64;  // fetched so long before they are wanted
constexpr float kMinusInfinity = -__builtin_inff();

inline int Smaller(int a, int b) { return a < b ? a : b; }

struct ChunkScratch {
  float* q;         // [kAttentionMaxRows][stride], scaled, zero beyond head_dim
  float* scores;    // [kAttentionMaxRows][kChunk]
  float* k_scales;  // [kChunk + kLanes], of int8 keys; small blocks' are stored by whole vectors
  float* v_scales;  // [kChunk + kLanes]
  float* keys;      // [kChunk / kLanes][stride][kLanes]
  float* values;    // [kChunk][stride]
};

inline ChunkScratch DivideScratch(float* scratch, int stride) {
  ChunkScratch s;
  s.q = scratch;
  s.scores = s.q + kAttentionMaxRows * stride;
  s.k_scales = s.scores + kAttentionMaxRows * kChunk;
  s.v_scales = s.k_scales + kChunk + kLanes;
  s.keys = s.v_scales + kChunk + kLanes;
  s.values = s.keys + kChunk * stride;
  return s;
}

// Rows of K or V in the order in which a chunk reads them, to be fetched before they are wanted: they lie in short runs
// all over the pool, which no processor foresees.
template <typename Element>
struct RowsAhead {
  const Element* rows;
  const std::int64_t* offset;
  int count;
  // What is read after these.
  const Element* then;
  const std::int64_t* then_offset;
  int then_count;
  int row_bytes;

  // For a loop that has reached row t, a multiple of kLanes. Inlined by force: GCC holds that a call which only
  // prefetches does nothing.
  __attribute__((always_inline)) void Fetch(int t) const {
    const int first = t + kAheadRows;
    if (first < count) {
      FetchRows(rows, offset, first, Smaller(count, first + kLanes));
    } else {
      FetchRows(then, then_offset, first - count, Smaller(then_count, first - count + kLanes));
    }
  }

 private:
  __attribute__((always_inline)) void FetchRows(const Element* from, const std::int64_t* at, int begin, int end) const {
    for (int t = begin; t < end; ++t) {
      const auto* row = reinterpret_cast<const char*>(from + at[t]);
      // To the second level: the first has too few places for what is under way.
      for (int b = 0; b < row_bytes; b += 64) __builtin_prefetch(row + b, 0, 2);
    }
  }
};

// q · k of kRows rows with `count` keys. A product's lanes are chains over d = j, j + 16, ... summed by SumLanes's
// tree.
template <int kRows, typename Element>
void ScoreDirect(const float* q, int stride, int head_dim, const RowsAhead<Element>& keys, float* scores) {
  const int count = keys.count;
  for (int t = 0; t < count; t += kLanes) {
    keys.Fetch(t);
    const int n = Smaller(kLanes, count - t);
    Vec partial[kRows][kLanes];
    for (int i = 0; i < n; ++i) {
      const Element* key = keys.rows + keys.offset[t + i];
      Vec x = LoadUpTo(key, head_dim);
      Vec sum[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] = Mul(Load(q + r * stride), x);
      for (int d = kLanes; d < head_dim; d += kLanes) {
        x = LoadUpTo(key + d, head_dim - d);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r] = Fma(Load(q + r * stride + d), x, sum[r]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) partial[r][i] = sum[r];
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      for (int i = n; i < kLanes; ++i) partial[r][i] = Set1(0.0F);
      Store(scores + r * kChunk + t, SumRows(partial[r]));
    }
  }
}

// The same products for 16 keys at once, a key per lane: SumLanes's tree over j = kFirst, kFirst + kStep, ..., whose
// leaves are the chains over d = j, j + 16, ...
template <int kRows, int kFirst, int kStep>
__attribute__((always_inline)) inline void SumTree(const float* q, int stride, const float* keys, Vec* out) {
  if constexpr (kStep == kLanes) {
    const Vec x = Load(keys + kFirst * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) out[r] = Mul(Set1(q[kFirst * kRows + r]), x);
      // GCC would unroll it for the largest head there may be, and run out of registers.
#pragma GCC unroll 1
    for (int d = kLanes; d < stride; d += kLanes) {
      const Vec y = Load(keys + (d + kFirst) * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) out[r] = Fma(Set1(q[(d + kFirst) * kRows + r]), y, out[r]);
    }
  } else {
    SumTree<kRows, kFirst, 2 * kStep>(q, stride, keys, out);
    Vec other[kRows];
    SumTree<kRows, kFirst + kStep, 2 * kStep>(q, stride, keys, other);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) out[r] = Add(out[r], other[r]);
  }
}

template <int kRows>
void ScoreTransposed(const float* q, int stride, const float* keys, int count, float* scores) {
  float together[kRows * kAttentionMaxHeadDim];  // [stride][kRows]: a key element meets neighbours
  for (int d = 0; d < stride; ++d) {
    for (int r = 0; r < kRows; ++r) together[d * kRows + r] = q[r * stride + d];
  }
  for (int t = 0; t < count; t += kLanes) {
    Vec sum[kRows];
    SumTree<kRows, 0, 1>(together, stride, keys + t * stride, sum);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) Store(scores + r * kChunk + t, sum[r]);
  }
}

template <typename Element>
void TransposeKeys(const RowsAhead<Element>& from, int head_dim, int stride, float* keys) {
  for (int t = 0; t < from.count; t += kLanes) {
    from.Fetch(t);
    for (int d = 0; d < stride; d += kLanes) {
      Vec rows[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = t + i < from.count ? LoadUpTo(from.rows + from.offset[t + i] + d, head_dim - d) : Set1(0.0F);
      }
      StoreTransposed(rows, keys + (t * stride + d * kLanes));
    }
  }
}

// Scores to exponentials relative to the row's maximum, in place, for the first `limit` ≥ 1 positions.
inline void Softmax(float* scores, int limit, float* max, float* sum) {
  const Vec nothing = Set1(kMinusInfinity);
  Vec largest = nothing;
  for (int t = 0; t < limit; t += kLanes) largest = Max(largest, KeepFirst(Load(scores + t), limit - t, nothing));
  const float m = MaxLanes(largest);
  Vec total = Set1(0.0F);
  for (int t = 0; t < limit; t += kLanes) {
    const Vec p = KeepFirst(Exp(Sub(Load(scores + t), Set1(m))), limit - t, Set1(0.0F));
    Store(scores + t, p);
    total = Add(total, p);
  }
  *max = m;
  *sum = SumLanes(total);
}

// acc[r] += p[r][t] · v[t] for t in [begin, end) ascending, in kBlocks vectors of each row from element `first` on;
// kWhole: head_dim, which counts from there, has them all.
template <int kRows, int kBlocks, bool kWhole, typename Element>
void AccumulateBlocks(const float* p, const RowsAhead<Element>& v, int first, int begin, int end, int head_dim,
                      float* acc, int stride) {
  Vec sum[kRows][kBlocks];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) sum[r][b] = Load(acc + r * stride + b * kLanes);
  }
  for (int t = begin; t < end; ++t) {
    if (t % kLanes == 0) v.Fetch(t);
    const Element* row = v.rows + v.offset[t] + first;
    Vec x[kBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) x[b] = LoadUpTo(row + b * kLanes, kWhole ? kLanes : head_dim - b * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = Set1(p[r * kChunk + t]);
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) sum[r][b] = Fma(weight, x[b], sum[r][b]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) Store(acc + r * stride + b * kLanes, sum[r][b]);
  }
}

template <int kRows, typename Element>
void AccumulateRows(const float* p, const RowsAhead<Element>& v, int begin, int end, int head_dim, float* acc,
                    int stride) {
  if (begin >= end) return;
  int d = 0;
  if constexpr (kValueBlocks > 1) {
    for (; d + kValueBlocks * kLanes <= head_dim; d += kValueBlocks * kLanes) {
      AccumulateBlocks<kRows, kValueBlocks, true>(p, v, d, begin, end, head_dim - d, acc + d, stride);
    }
  }
  for (; d + kLanes <= head_dim; d += kLanes) {
    AccumulateBlocks<kRows, 1, true>(p, v, d, begin, end, head_dim - d, acc + d, stride);
  }
  if (d < head_dim) AccumulateBlocks<kRows, 1, false>(p, v, d, begin, end, head_dim - d, acc + d, stride);
}

// Rows of neighbouring tokens attend nearly the same positions: together as far as all do, then each alone.
template <int kRows, typename Element>
void WeighValues(const float* p, const int* limit, const RowsAhead<Element>& v, int head_dim, float* acc, int stride) {
  int common = limit[0];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    common = Smaller(common, limit[r]);
    for (int d = 0; d < stride; d += kLanes) Store(acc + r * stride + d, Set1(0.0F));
  }
  AccumulateRows<kRows>(p, v, 0, common, head_dim, acc, stride);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    AccumulateRows<1>(p + r * kChunk, v, common, limit[r], head_dim, acc + r * stride, stride);
  }
}

template <typename Element>
void WeighAllValues(const float* p, const int* limit, int rows, const RowsAhead<Element>& v, int head_dim, float* acc,
                    int stride) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) {
    WeighValues<4>(p + r * kChunk, limit + r, v, head_dim, acc + r * stride, stride);
  }
  p += r * kChunk;
  limit += r;
  acc += r * stride;
  switch (rows - r) {
    case 3:
      return WeighValues<3>(p, limit, v, head_dim, acc, stride);
    case 2:
      return WeighValues<2>(p, limit, v, head_dim, acc, stride);
    case 1:
      return WeighValues<1>(p, limit, v, head_dim, acc, stride);
    default:
      return;
  }
}

template <typename Element>
void ScoreAllDirect(const ChunkScratch& s, int rows, const RowsAhead<Element>& keys, int head_dim, int stride) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) {
    ScoreDirect<4>(s.q + r * stride, stride, head_dim, keys, s.scores + r * kChunk);
  }
  const float* q = s.q + r * stride;
  float* scores = s.scores + r * kChunk;
  switch (rows - r) {
    case 3:
      return ScoreDirect<3>(q, stride, head_dim, keys, scores);
    case 2:
      return ScoreDirect<2>(q, stride, head_dim, keys, scores);
    case 1:
      return ScoreDirect<1>(q, stride, head_dim, keys, scores);
    default:
      return;
  }
}

inline void ScoreAllTransposed(const ChunkScratch& s, int rows, int count, int stride) {
  int r = 0;
  for (; r + kScoreRows <= rows; r += kScoreRows) {
    ScoreTransposed<kScoreRows>(s.q + r * stride, stride, s.keys, count, s.scores + r * kChunk);
  }
  for (; r < rows; ++r) ScoreTransposed<1>(s.q + r * stride, stride, s.keys, count, s.scores + r * kChunk);
}

inline void ScaleQueries(const AttentionTile& tile, int stride, float* q) {
  const Vec scale = Set1(tile.scale);
  for (int i = 0; i < tile.num_tokens; ++i) {
    for (int h = 0; h < tile.group; ++h) {
      const float* from = tile.q + i * tile.q_token_stride + h * static_cast<std::int64_t>(tile.head_dim);
      for (int d = 0; d < stride; d += kLanes) Store(q + d, Mul(LoadUpTo(from + d, tile.head_dim - d), scale));
      q += stride;
    }
  }
}

// The chunk's scales in order of position, and zeros up to a whole vector.
inline void LoadScales(const AttentionTile& tile, int begin, int count, const ChunkScratch& s) {
  const std::int64_t block_stride = tile.block_bytes / std::int64_t{sizeof(std::uint16_t)};
  for (int t = 0; t < count; t += Smaller(tile.block_tokens, count - t)) {
    const std::int64_t block = tile.block_ids[(begin + t) / tile.block_tokens] * block_stride;
    const int n = Smaller(tile.block_tokens, count - t);
    for (int i = 0; i < n; i += kLanes) {
      Store(s.k_scales + t + i, LoadUpTo(Halves{tile.k_scales + block + i}, n - i));
      Store(s.v_scales + t + i, LoadUpTo(Halves{tile.v_scales + block + i}, n - i));
    }
  }
}

inline void MultiplyInto(const float* factors, int count, float* x) {
  for (int t = 0; t < count; t += kLanes) Store(x + t, Mul(Load(x + t), Load(factors + t)));
}

// The values in float32, `stride` apart: converted once for all rows. Overwrites their offsets.
template <typename Element>
RowsAhead<float> WidenValues(const RowsAhead<Element>& from, int head_dim, int stride, float* values,
                             std::int64_t* offset) {
  for (int t = 0; t < from.count; ++t) {
    if (t % kLanes == 0) from.Fetch(t);
    const Element* row = from.rows + from.offset[t];
    for (int d = 0; d < stride; d += kLanes) Store(values + t * stride + d, LoadUpTo(row + d, head_dim - d));
    offset[t] = static_cast<std::int64_t>(t) * stride;
  }
  return {values, offset, from.count, nullptr, nullptr, 0, 0};
}

// Where `count` rows from position `begin` on lie, in elements from block 0's first.
template <typename Element>
void LocateRows(const AttentionTile& tile, const std::int32_t* block_ids, int begin, int count, std::int64_t* offset) {
  const std::int64_t block_stride = tile.block_bytes / std::int64_t{sizeof(Element)};
  for (int t = 0; t < count;) {
    const int place = (begin + t) % tile.block_tokens;
    const int n = Smaller(tile.block_tokens - place, count - t);
    std::int64_t at = block_ids[(begin + t) / tile.block_tokens] * block_stride + std::int64_t{place} * tile.head_dim;
    for (const int end = t + n; t < end; ++t, at += tile.head_dim) offset[t] = at;
  }
}

template <typename Element, bool kScaled>
void AttendChunkOf(const AttentionTile& tile, std::int32_t chunk, float* scratch, const AttentionPartial& out) {
  const int begin = chunk * kChunk;
  const int count = Smaller(kChunk, tile.first_position + tile.num_tokens - begin);
  const int rows = tile.num_tokens * tile.group;
  const int stride = out.stride;
  const int head_dim = tile.head_dim;
  const ChunkScratch s = DivideScratch(scratch, stride);

  std::int64_t offset[kChunk];  // of a position's key and value
  LocateRows<Element>(tile, tile.block_ids, begin, count, offset);
  std::int64_t next_offset[kAheadRows];
  const int next_count = Smaller(kAheadRows, tile.next.num_tokens);
  LocateRows<Element>(tile, tile.next.block_ids, tile.next.first_position, next_count, next_offset);
  const auto* v = reinterpret_cast<const Element*>(tile.v);
  const auto* next_k = reinterpret_cast<const Element*>(tile.next.k);
  const int row_bytes = head_dim * static_cast<int>(sizeof(Element));
  const RowsAhead<Element> keys = {
      reinterpret_cast<const Element*>(tile.k), offset, count, v, offset, count, row_bytes};
  const RowsAhead<Element> values = {v, offset, count, next_k, next_offset, next_count, row_bytes};

  ScaleQueries(tile, stride, s.q);
  const bool transpose = rows >= kRowsWorthTransposing;
  if (transpose) {
    TransposeKeys(keys, head_dim, stride, s.keys);
    ScoreAllTransposed(s, rows, count, stride);
  } else {
    ScoreAllDirect(s, rows, keys, head_dim, stride);
  }
  if constexpr (kScaled) {
    LoadScales(tile, begin, count, s);
    for (int r = 0; r < rows; ++r) MultiplyInto(s.k_scales, count, s.scores + r * kChunk);
  }

  int limit[kAttentionMaxRows];  // positions of the chunk that the row attends
  for (int r = 0; r < rows; ++r) {
    const int attended = tile.first_position + r / tile.group + 1 - begin;
    limit[r] = attended < 0 ? 0 : Smaller(attended, count);
    if (limit[r] == 0) {
      out.max[r] = kMinusInfinity;
      out.sum[r] = 0.0F;
    } else {
      Softmax(s.scores + r * kChunk, limit[r], &out.max[r], &out.sum[r]);
      if constexpr (kScaled) MultiplyInto(s.v_scales, limit[r], s.scores + r * kChunk);
    }
  }
  if (transpose) {
    const RowsAhead<float> widened = WidenValues(values, head_dim, stride, s.values, offset);
    WeighAllValues(s.scores, limit, rows, widened, stride, out.acc, stride);
  } else {
    WeighAllValues(s.scores, limit, rows, values, head_dim, out.acc, stride);
  }
}

void AttendChunk(const AttentionTile& tile, std::int32_t chunk, float* scratch, const AttentionPartial& out) {
  switch (tile.element) {
    case KvElement::kF32:
      return AttendChunkOf<float, false>(tile, chunk, scratch, out);
    case KvElement::kBF16:
      return AttendChunkOf<std::uint16_t, false>(tile, chunk, scratch, out);
    case KvElement::kInt8:
      return AttendChunkOf<std::int8_t, true>(tile, chunk, scratch, out);
  }
}

void MergePartials(std::int32_t rows, const AttentionPartial& next, const AttentionPartial& state) {
  for (int r = 0; r < rows; ++r) {
    if (next.sum[r] == 0.0F) continue;
    const float max = state.max[r] > next.max[r] ? state.max[r] : next.max[r];
    const Vec keep = Exp(Set1(state.max[r] - max));
    const Vec take = Exp(Set1(next.max[r] - max));
    state.max[r] = max;
    state.sum[r] = First(Fma(Set1(next.sum[r]), take, Mul(Set1(state.sum[r]), keep)));
    float* acc = state.acc + r * state.stride;
    const float* more = next.acc + r * next.stride;
    for (int d = 0; d < state.stride; d += kLanes) {
      Store(acc + d, Fma(Load(more + d), take, Mul(Load(acc + d), keep)));
    }
  }
}

void FinishRows(const AttentionTile& tile, const AttentionPartial& state, float* out, std::int64_t out_token_stride) {
  for (int i = 0; i < tile.num_tokens; ++i) {
    for (int h = 0; h < tile.group; ++h) {
      const int r = i * tile.group + h;
      const Vec sum = Set1(state.sum[r]);
      float* to = out + i * out_token_stride + h * static_cast<std::int64_t>(tile.head_dim);
      for (int d = 0; d < tile.head_dim; d += kLanes) {
        StoreUpTo(to + d, Div(Load(state.acc + r * state.stride + d), sum), tile.head_dim - d);
      }
    }
  }
}

constexpr AttentionKernels kAttentionKernels = {AttendChunk, MergePartials, FinishRows};

}  // namespace
}  // namespace berth::cpu
