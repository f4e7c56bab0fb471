// A step's attention, shared out among threads. The unit of work is one chunk of 256 positions for one KV head of one
// tile of query tokens; each thread takes a contiguous range of units of about the same cost, so that even a lone long
// sequence occupies all threads. Where a range ends inside a tile's chunks, the partials of the later threads are kept
// and merged in order by the thread that began it: who computes what never changes a bit.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/attention.h"
#include "runner/cpu/kv_store.h"
#include "runner/memory_layout.h"
#include "runner/step_inputs.h"

namespace berth {

struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t max_context_tokens = 0;
};

class AttentionStage {
 public:
  AttentionStage(const AttentionShape& shape, cpu::CpuLevel level, int threads);

  // Takes the buffers of all threads; called again with the real memory.
  void LayOut(MemoryLayout& layout);

  // Shares out the step's work; the same for every layer.
  void Plan(const StepInputs& inputs);
  // Some tile is split between threads: after every thread's Attend, a barrier and every thread's MergeSplit follow.
  bool has_split() const { return has_split_; }

  // q and out: one row per token of the step, the heads side by side at the row's start.
  struct Rows {
    const KvStore* kv = nullptr;
    std::int32_t layer = 0;
    const float* q = nullptr;
    std::int64_t q_stride = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;
  };
  void Attend(const Rows& rows, int thread);
  void MergeSplit(const Rows& rows, int thread);

 private:
  struct Tile {
    std::int32_t sequence = 0;
    std::int32_t first_token = 0;  // of the step
    std::int32_t num_tokens = 0;
    std::int32_t first_position = 0;
    std::int32_t first_head = 0;  // of the group
    std::int32_t heads = 0;
    std::int32_t chunks = 0;
    std::int64_t cost = 0;  // of one KV head
  };
  // A place in the order of all units: chunks inside KV heads inside tiles.
  struct Cursor {
    std::int32_t tile = 0;
    std::int32_t kv_head = 0;
    std::int32_t chunk = 0;

    bool SameItem(const Cursor& other) const { return tile == other.tile && kv_head == other.kv_head; }
    // NOLINTNEXTLINE(modernize-use-nullptr): the 0 of the comparison is none
    auto operator<=>(const Cursor&) const = default;
  };
  struct ThreadBuffers {
    float* scratch = nullptr;
    cpu::AttentionPartial state;
    cpu::AttentionPartial next;
    // Of an item begun by an earlier thread: [chunks that this thread computed].
    float* kept = nullptr;
  };

  void AddTiles(const SequenceInput& sequence, std::int32_t index);
  std::int64_t ChunkCost(const Tile& tile, std::int32_t tokens) const;
  Cursor Locate(std::int64_t cost) const;
  std::size_t PartialFloats() const;
  cpu::AttentionPartial PartialAt(float* memory) const;
  cpu::AttentionTile Describe(const Rows& rows, const Tile& tile, std::int32_t kv_head) const;
  void AttendItem(const Rows& rows, int thread, const Cursor& from, std::int32_t chunk_end);
  // The KV head or tile after `item`, whichever thread attends it; one past the last tile at the end.
  Cursor NextItem(Cursor item) const;
  cpu::AttentionTile::Next FirstKeys(const Rows& rows, const Cursor& item) const;
  float* Output(const Rows& rows, const Tile& tile, std::int32_t kv_head) const;

  const AttentionShape shape_;
  const std::int32_t group_;
  const cpu::AttentionKernels& kernels_;
  const int threads_;
  std::vector<ThreadBuffers> buffers_;

  // Of the step.
  const StepInputs* inputs_ = nullptr;
  std::vector<Tile> tiles_;
  std::vector<Cursor> begins_;  // [threads + 1]
  bool has_split_ = false;
};

}  // namespace berth
