// Attention over the paged cache: decode, prompts, and without tensor cores.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/cuda/guarded_array.h"
#include "kernels/cuda/head_dims.h"
#include "kernels/cuda/op_registry/cpu_attention.h"
#include "kernels/cuda/op_registry/op_case.h"
#include "kernels/cuda/op_registry/values.h"
#include "kernels/cuda/paged_cache.h"
#include "kernels/cuda/paged_decode.h"
#include "kernels/cuda/paged_prefill.h"
#include "kernels/cuda/plain_attention.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

// A row at the end of `length` positions.
QueryRow RowAt(std::size_t sequence, int length, int window) {
  return {sequence, window > 0 ? std::max(0, length - window) : 0, length};
}

// Rows of queries, each of which attends to some positions of its sequence. What no row attends to is NaN.
class AttentionCase : public OpCase {
 public:
  // bound: of a result beside its rounding to bfloat16.
  AttentionCase(const AttentionShape& shape, std::vector<QueryRow> rows, double bound)
      : shape_(shape),
        rows_(std::move(rows)),
        bound_(bound),
        cache_(shape.cache, Stored(rows_)),
        q_(RandomBf16(rows_.size() * RowSize(), 6)) {}

  std::vector<Expected> Oracle() const override {
    Expected output("output");
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (int head = 0; head < shape_.num_q_heads; ++head) {
        const std::uint16_t* q = q_.data() + row * RowSize() + Size(head) * Size(shape_.cache.head_dim);
        for (const double value :
             cache_.Attend(q, rows_[row].sequence, head / Group(), rows_[row].begin, rows_[row].end, double{Scale()})) {
          output.Add(value, Bf16Unit(value) + bound_);
          if (shape_.window == 0) output.cpu_bounds.push_back(1e-5);
        }
      }
    }
    return {std::move(output)};
  }

  std::optional<Outputs> OnCpu() const override {
    if (shape_.window > 0) return std::nullopt;
    CpuAttention attention(shape_, cache_);
    const std::vector<float> q = Floats(q_);
    std::vector<float> output(q.size(), 0.0f);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].end == 0) continue;
      for (int head = 0; head < shape_.cache.num_kv_heads; ++head) {
        const std::size_t at = row * RowSize() + Size(head * Group()) * Size(shape_.cache.head_dim);
        attention.Attend(rows_[row], head, q.data() + at, output.data() + at);
      }
    }
    return Outputs{Doubles(output)};
  }

 protected:
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.cache.head_dim)); }
  int Group() const { return shape_.num_q_heads / shape_.cache.num_kv_heads; }
  std::size_t RowSize() const { return Size(shape_.num_q_heads) * Size(shape_.cache.head_dim); }

  // The rows' queries with NaN between them, kGap elements.
  std::vector<std::uint16_t> SpacedQueries() const {
    std::vector<std::uint16_t> spaced;
    for (auto row = q_.begin(); row != q_.end(); row += static_cast<std::ptrdiff_t>(RowSize())) {
      spaced.insert(spaced.end(), row, row + static_cast<std::ptrdiff_t>(RowSize()));
      spaced.resize(spaced.size() + kGap, 0xffff);
    }
    return spaced;
  }
  std::int64_t QueryStride() const { return static_cast<std::int64_t>(RowSize() + kGap); }
  std::vector<std::int32_t> Lengths() const {
    std::vector<std::int32_t> lengths;
    for (const QueryRow& row : rows_) lengths.push_back(row.end);
    return lengths;
  }

  const AttentionShape shape_;
  const std::vector<QueryRow> rows_;
  const double bound_;
  const PagedCache cache_;
  const std::vector<std::uint16_t> q_;

 private:
  static constexpr std::size_t kGap = 8;

  static std::vector<StoredPositions> Stored(const std::vector<QueryRow>& rows) {
    std::vector<StoredPositions> stored;
    for (const QueryRow& row : rows) {
      if (row.sequence >= stored.size()) stored.resize(row.sequence + 1, {std::numeric_limits<int>::max(), 0});
      StoredPositions& of_sequence = stored[row.sequence];
      if (row.end > 0) of_sequence.begin = std::min(of_sequence.begin, row.begin);
      of_sequence.end = std::max(of_sequence.end, row.end);
    }
    return stored;
  }
};

// A row for each sequence.
class DecodeCase : public AttentionCase {
 public:
  DecodeCase(const AttentionShape& shape, const std::vector<int>& lengths, int chunk_tokens)
      : AttentionCase(shape, Rows(lengths), 8e-3), chunk_tokens_(chunk_tokens) {}

  bool CudaIsBuilt() const override { return IsTunedHeadDim(shape_.cache.head_dim); }

  Outputs OnCuda() const override {
    const DeviceArray<std::uint16_t> q(SpacedQueries());
    const DeviceArray<std::int32_t> lengths(Lengths());
    const GuardedArray<std::uint16_t> output(q_.size());
    PagedDecodeParams params{.q = q.data(),
                             .q_stride = QueryStride(),
                             .cache = cache_.OnDevice(),
                             .block_tables = cache_.device_tables(),
                             .kv_lengths = lengths.data(),
                             .output = output.data(),
                             .partials = nullptr,
                             .max_blocks = cache_.max_blocks(),
                             .num_sequences = static_cast<std::int32_t>(rows_.size()),
                             .num_q_heads = shape_.num_q_heads,
                             .chunk_tokens = chunk_tokens_,
                             .num_chunks = kChunks,
                             .scale = Scale()};
    const GuardedArray<float> partials(Size(PagedDecodePartialFloats(params)));
    params.partials = partials.data();
    EXPECT_EQ(LaunchPagedDecode(params, nullptr), cudaSuccess);
    (void)partials.Read();
    return {Doubles(output.Read())};
  }

 private:
  static constexpr int kChunks = 6;  // more than most sequences have

  static std::vector<QueryRow> Rows(const std::vector<int>& lengths) {
    std::vector<QueryRow> rows;
    for (const int length : lengths) rows.push_back(RowAt(rows.size(), length, 0));
    return rows;
  }

  int chunk_tokens_;
};

// Query tokens at positions begin .. end - 1 of a sequence, which come once and in order.
struct PromptChunk {
  std::size_t sequence;
  int begin;
  int end;
};

class PrefillCase : public AttentionCase {
 public:
  PrefillCase(const AttentionShape& shape, const std::vector<PromptChunk>& chunks)
      : AttentionCase(shape, Rows(chunks, shape.window), 8e-3), chunks_(chunks) {}

  bool CudaIsBuilt() const override { return IsTunedHeadDim(shape_.cache.head_dim); }

  Outputs OnCuda() const override {
    std::vector<std::int32_t> begins(1, 0);
    std::vector<std::int32_t> lengths;
    std::vector<PrefillTile> tiles;
    for (const PromptChunk& chunk : chunks_) {
      // Sequences between have no token in the step.
      lengths.resize(chunk.sequence, 0);
      begins.resize(chunk.sequence + 1, begins.back());
      lengths.push_back(chunk.end);
      begins.push_back(begins.back() + chunk.end - chunk.begin);
      const std::int32_t count = PrefillTiles(chunk.end - chunk.begin, shape_.num_q_heads, shape_.cache.num_kv_heads);
      for (std::int32_t i = 0; i < count; ++i) {
        tiles.push_back({static_cast<std::int32_t>(chunk.sequence), i * kPrefillTileRows});
      }
    }
    const DeviceArray<std::uint16_t> q(SpacedQueries());
    const DeviceArray<std::int32_t> token_begins(begins);
    const DeviceArray<std::int32_t> kv_lengths(lengths);
    const DeviceArray<PrefillTile> device_tiles(tiles);
    const GuardedArray<std::uint16_t> output(q_.size());
    EXPECT_EQ(LaunchPagedPrefill({.q = q.data(),
                                  .q_stride = QueryStride(),
                                  .cache = cache_.OnDevice(),
                                  .block_tables = cache_.device_tables(),
                                  .token_begins = token_begins.data(),
                                  .kv_lengths = kv_lengths.data(),
                                  .tiles = device_tiles.data(),
                                  .output = output.data(),
                                  .max_blocks = cache_.max_blocks(),
                                  .num_tiles = static_cast<std::int32_t>(tiles.size()),
                                  .num_q_heads = shape_.num_q_heads,
                                  .window = shape_.window,
                                  .scale = Scale()},
                                 nullptr),
              cudaSuccess);
    return {Doubles(output.Read())};
  }

 private:
  static std::vector<QueryRow> Rows(const std::vector<PromptChunk>& chunks, int window) {
    std::vector<QueryRow> rows;
    for (const PromptChunk& chunk : chunks) {
      for (int position = chunk.begin; position < chunk.end; ++position) {
        rows.push_back(RowAt(chunk.sequence, position + 1, window));
      }
    }
    return rows;
  }

  std::vector<PromptChunk> chunks_;
};

class PlainCase : public AttentionCase {
 public:
  PlainCase(const AttentionShape& shape, const std::vector<QueryRow>& rows) : AttentionCase(shape, rows, 1e-5) {}

  Outputs OnCuda() const override {
    std::vector<std::int32_t> row_sequences;
    for (const QueryRow& row : rows_) row_sequences.push_back(static_cast<std::int32_t>(row.sequence));
    const DeviceArray<std::uint16_t> q(SpacedQueries());
    const DeviceArray<std::int32_t> sequences(row_sequences);
    const DeviceArray<std::int32_t> lengths(Lengths());
    const GuardedArray<std::uint16_t> output(q_.size());
    EXPECT_EQ(LaunchPlainAttention({.q = q.data(),
                                    .q_stride = QueryStride(),
                                    .cache = cache_.OnDevice(),
                                    .block_tables = cache_.device_tables(),
                                    .sequences = sequences.data(),
                                    .kv_lengths = lengths.data(),
                                    .output = output.data(),
                                    .max_blocks = cache_.max_blocks(),
                                    .num_rows = static_cast<std::int32_t>(rows_.size()),
                                    .num_q_heads = shape_.num_q_heads,
                                    .window = shape_.window,
                                    .scale = Scale()},
                                   nullptr),
              cudaSuccess);
    return {Doubles(output.Read())};
  }
};

std::string NameOf(const AttentionShape& shape) {
  return "dim" + std::to_string(shape.cache.head_dim) + (shape.cache.element == KvElement::kInt8 ? "_int8" : "_bf16") +
         "_blocks" + std::to_string(shape.cache.block_tokens) + "_heads" + std::to_string(shape.num_q_heads) + "_" +
         std::to_string(shape.cache.num_kv_heads) + (shape.window > 0 ? "_window" + std::to_string(shape.window) : "");
}

constexpr char kTensorCoreBound[] = "8e-3 (weights in bfloat16) + one unit of bfloat16; CPU 1e-5";

void AddDecode(std::vector<OpEntry>* entries) {
  struct Shape {
    AttentionShape attention;
    std::vector<int> lengths;
  };
  for (const auto& [shape, lengths] : {
           Shape{{9, {3, 64, 16, KvElement::kBf16}}, {1, 0, 64, 200, 333}},
           Shape{{9, {3, 64, 16, KvElement::kInt8}}, {17, 63, 200}},
           Shape{{4, {4, 80, 16, KvElement::kBf16}}, {65, 31}},
           Shape{{4, {1, 80, 32, KvElement::kInt8}}, {65, 31}},
           Shape{{4, {2, 96, 8, KvElement::kBf16}}, {130, 15}},
           Shape{{4, {2, 96, 8, KvElement::kInt8}}, {130, 15}},
           Shape{{20, {1, 128, 16, KvElement::kBf16}}, {100, 16}},  // more heads than a tile has rows
           Shape{{8, {1, 128, 64, KvElement::kInt8}}, {100, 16}},
           Shape{{2, {1, 256, 16, KvElement::kBf16}}, {70, 129}},
           Shape{{2, {1, 256, 16, KvElement::kInt8}}, {70, 129}},
       }) {
    for (const int chunk_tokens : {64, 512}) {
      entries->push_back(MakeEntry<DecodeCase>("paged_decode", NameOf(shape) + "_chunks" + std::to_string(chunk_tokens),
                                               kTensorCoreBound, shape, lengths, chunk_tokens));
    }
  }
}

void AddPrefill(std::vector<OpEntry>* entries) {
  // A whole prompt, a chunk behind 270 positions, a single token, a sequence that is not in the step.
  const std::vector<PromptChunk> chunks = {{0, 0, 75}, {1, 270, 291}, {2, 68, 69}, {4, 0, 1}};
  for (const AttentionShape& shape : {
           AttentionShape{6, {2, 64, 16, KvElement::kBf16}, 0},
           AttentionShape{3, {1, 64, 16, KvElement::kInt8}, 0},
           AttentionShape{2, {1, 64, 4, KvElement::kBf16}, 30},
           AttentionShape{2, {1, 64, 32, KvElement::kInt8}, 67},
           AttentionShape{1, {1, 80, 16, KvElement::kBf16}, 0},
           AttentionShape{4, {1, 80, 32, KvElement::kInt8}, 0},
           AttentionShape{2, {1, 96, 8, KvElement::kBf16}, 0},
           AttentionShape{2, {1, 96, 8, KvElement::kInt8}, 0},
           AttentionShape{3, {1, 128, 16, KvElement::kBf16}, 0},
           AttentionShape{2, {1, 128, 64, KvElement::kInt8}, 33},
           AttentionShape{2, {1, 256, 16, KvElement::kBf16}, 0},
           AttentionShape{1, {1, 256, 2, KvElement::kInt8}, 50},
       }) {
    entries->push_back(MakeEntry<PrefillCase>("paged_prefill", NameOf(shape), kTensorCoreBound, shape, chunks));
  }
}

void AddPlain(std::vector<OpEntry>* entries) {
  for (const AttentionShape& shape : {
           AttentionShape{8, {4, 8, 16, KvElement::kBf16}, 0},
           AttentionShape{8, {4, 8, 16, KvElement::kInt8}, 0},
           AttentionShape{2, {2, 6, 1, KvElement::kBf16}, 100},
           AttentionShape{3, {1, 48, 8, KvElement::kInt8}, 140},
           AttentionShape{2, {1, 256, 32, KvElement::kBf16}, 0},
       }) {
    // Decode of one sequence, a piece of a prompt of the other, a row that attends to nothing.
    std::vector<QueryRow> rows = {RowAt(1, 300, shape.window)};
    for (const int length : {0, 1, 2, 128, 129}) rows.push_back(RowAt(0, length, shape.window));
    entries->push_back(
        MakeEntry<PlainCase>("plain_attention", NameOf(shape), "1e-5 + one unit of bfloat16; CPU 1e-5", shape, rows));
  }
}

}  // namespace

std::vector<OpEntry> AttentionCases() {
  std::vector<OpEntry> entries;
  AddDecode(&entries);
  AddPrefill(&entries);
  AddPlain(&entries);
  return entries;
}

}  // namespace berth::cuda
