#include "runner/cpu/attention_stage.h"

#include <algorithm>
#include <cmath>

#include "berth/units.h"

namespace berth {
namespace {

using cpu::kAttentionChunkTokens;
using cpu::kAttentionMaxRows;

// What reading K and V costs, in query rows: it weighs most in decode, where a tile has few rows.
constexpr std::int64_t kReadCostRows = 6;

}  // namespace

AttentionStage::AttentionStage(const AttentionShape& shape, cpu::CpuLevel level, int threads)
    : shape_(shape),
      group_(shape.heads / shape.kv_heads),
      kernels_(cpu::GetAttentionKernels(level)),
      threads_(threads),
      buffers_(static_cast<std::size_t>(threads)),
      begins_(static_cast<std::size_t>(threads) + 1) {}

std::size_t AttentionStage::PartialFloats() const {
  const auto stride = static_cast<std::size_t>(cpu::AttentionStride(shape_.head_dim));
  return static_cast<std::size_t>(kAttentionMaxRows) * (stride + 2);
}

cpu::AttentionPartial AttentionStage::PartialAt(float* memory) const {
  cpu::AttentionPartial partial;
  partial.stride = cpu::AttentionStride(shape_.head_dim);
  partial.acc = memory;  // first: it is read and written by whole vectors
  partial.max = memory + static_cast<std::ptrdiff_t>(kAttentionMaxRows) * partial.stride;
  partial.sum = partial.max + kAttentionMaxRows;
  return partial;
}

void AttentionStage::LayOut(MemoryLayout& layout) {
  const auto max_chunks = static_cast<std::size_t>(CeilDiv(shape_.max_context_tokens, kAttentionChunkTokens));
  for (ThreadBuffers& buffers : buffers_) {
    buffers.scratch = layout.Take<float>(cpu::AttentionScratchFloats(shape_.head_dim));
    float* state = layout.Take<float>(PartialFloats());
    float* next = layout.Take<float>(PartialFloats());
    buffers.kept = layout.Take<float>(max_chunks, PartialFloats());
    if (state == nullptr) continue;
    buffers.state = PartialAt(state);
    buffers.next = PartialAt(next);
  }
}

std::int64_t AttentionStage::ChunkCost(const Tile& tile, std::int32_t tokens) const {
  return (std::int64_t{tile.num_tokens} * tile.heads + kReadCostRows) * tokens;
}

void AttentionStage::AddTiles(const SequenceInput& sequence, std::int32_t index) {
  for (std::int32_t head = 0; head < group_; head += kAttentionMaxRows) {
    const std::int32_t heads = std::min(group_ - head, kAttentionMaxRows);
    const std::int32_t tile_tokens = kAttentionMaxRows / heads;
    for (std::int32_t token = 0; token < sequence.query_tokens; token += tile_tokens) {
      Tile tile;
      tile.sequence = index;
      tile.first_token = sequence.token_begin + token;
      tile.num_tokens = std::min(tile_tokens, sequence.query_tokens - token);
      tile.first_position = sequence.first_position + token;
      tile.first_head = head;
      tile.heads = heads;
      const std::int32_t kv_tokens = tile.first_position + tile.num_tokens;
      tile.chunks = static_cast<std::int32_t>(CeilDiv(kv_tokens, kAttentionChunkTokens));
      tile.cost = ChunkCost(tile, kv_tokens);
      tiles_.push_back(tile);
    }
  }
}

AttentionStage::Cursor AttentionStage::Locate(std::int64_t cost) const {
  Cursor cursor;
  for (const Tile& tile : tiles_) {
    if (cost < tile.cost * shape_.kv_heads) {
      cursor.kv_head = static_cast<std::int32_t>(cost / tile.cost);
      const std::int64_t chunk_cost = ChunkCost(tile, kAttentionChunkTokens);
      cursor.chunk = static_cast<std::int32_t>((cost % tile.cost + chunk_cost / 2) / chunk_cost);
      if (cursor.chunk >= tile.chunks) {
        cursor.chunk = 0;
        ++cursor.kv_head;
      }
      if (cursor.kv_head == shape_.kv_heads) {
        cursor.kv_head = 0;
        ++cursor.tile;
      }
      return cursor;
    }
    cost -= tile.cost * shape_.kv_heads;
    ++cursor.tile;
  }
  return cursor;
}

void AttentionStage::Plan(const StepInputs& inputs) {
  inputs_ = &inputs;
  tiles_.clear();
  std::int32_t index = 0;
  for (const SequenceInput& sequence : inputs.sequences()) AddTiles(sequence, index++);
  std::int64_t total = 0;
  for (const Tile& tile : tiles_) total += tile.cost * shape_.kv_heads;
  has_split_ = false;
  begins_.front() = Cursor{};
  for (int thread = 1; thread < threads_; ++thread) {
    Cursor& begin = begins_[static_cast<std::size_t>(thread)];
    begin = Locate(total / threads_ * thread);
    has_split_ = has_split_ || begin.chunk > 0;
  }
  begins_.back() = Cursor{static_cast<std::int32_t>(tiles_.size()), 0, 0};
}

cpu::AttentionTile AttentionStage::Describe(const Rows& rows, const Tile& tile, std::int32_t kv_head) const {
  cpu::AttentionTile described;
  rows.kv->Describe(rows.layer, kv_head, &described);
  const std::int64_t head = std::int64_t{kv_head} * group_ + tile.first_head;
  described.q = rows.q + tile.first_token * rows.q_stride + head * shape_.head_dim;
  described.q_token_stride = rows.q_stride;
  described.num_tokens = tile.num_tokens;
  described.group = tile.heads;
  described.first_position = tile.first_position;
  described.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  described.block_ids = inputs_->sequences()[static_cast<std::size_t>(tile.sequence)].block_ids;
  return described;
}

float* AttentionStage::Output(const Rows& rows, const Tile& tile, std::int32_t kv_head) const {
  const std::int64_t head = std::int64_t{kv_head} * group_ + tile.first_head;
  return rows.out + tile.first_token * rows.out_stride + head * shape_.head_dim;
}

void AttentionStage::Attend(const Rows& rows, int thread) {
  Cursor at = begins_[static_cast<std::size_t>(thread)];
  const Cursor end = begins_[static_cast<std::size_t>(thread) + 1];
  while (at < end) {
    const bool ends_inside = at.SameItem(end);
    AttendItem(rows, thread, at, ends_inside ? end.chunk : tiles_[static_cast<std::size_t>(at.tile)].chunks);
    if (ends_inside) return;
    at = NextItem(at);
  }
}

AttentionStage::Cursor AttentionStage::NextItem(Cursor item) const {
  item.chunk = 0;
  if (++item.kv_head == shape_.kv_heads) {
    item.kv_head = 0;
    ++item.tile;
  }
  return item;
}

cpu::AttentionTile::Next AttentionStage::FirstKeys(const Rows& rows, const Cursor& item) const {
  if (item.tile == static_cast<std::int32_t>(tiles_.size())) return {};
  const Tile& tile = tiles_[static_cast<std::size_t>(item.tile)];
  const cpu::AttentionTile described = Describe(rows, tile, item.kv_head);
  return {described.k, described.block_ids, 0, tile.first_position + tile.num_tokens};
}

void AttentionStage::AttendItem(const Rows& rows, int thread, const Cursor& from, std::int32_t chunk_end) {
  const Tile& tile = tiles_[static_cast<std::size_t>(from.tile)];
  const ThreadBuffers& buffers = buffers_[static_cast<std::size_t>(thread)];
  cpu::AttentionTile described = Describe(rows, tile, from.kv_head);
  const cpu::AttentionTile::Next after = FirstKeys(rows, NextItem(from));
  const auto attend = [&](std::int32_t chunk, const cpu::AttentionPartial& partial) {
    const std::int32_t next = (chunk + 1) * kAttentionChunkTokens;
    const std::int32_t left = tile.first_position + tile.num_tokens - next;
    described.next = left > 0 ? cpu::AttentionTile::Next{described.k, described.block_ids, next, left} : after;
    kernels_.attend_chunk(described, chunk, buffers.scratch, partial);
  };
  if (from.chunk > 0) {
    float* kept = buffers.kept;
    for (std::int32_t chunk = from.chunk; chunk < chunk_end; ++chunk, kept += PartialFloats()) {
      attend(chunk, PartialAt(kept));
    }
    return;
  }
  attend(0, buffers.state);
  for (std::int32_t chunk = 1; chunk < chunk_end; ++chunk) {
    attend(chunk, buffers.next);
    kernels_.merge(tile.num_tokens * tile.heads, buffers.next, buffers.state);
  }
  // Else the item is the last of this thread's range, and its state waits for MergeSplit.
  if (chunk_end == tile.chunks) {
    kernels_.finish(described, buffers.state, Output(rows, tile, from.kv_head), rows.out_stride);
  }
}

void AttentionStage::MergeSplit(const Rows& rows, int thread) {
  const auto at = static_cast<std::size_t>(thread);
  Cursor item = begins_[at + 1];
  if (item.chunk == 0) return;
  item.chunk = 0;
  if (item < begins_[at]) return;  // begun by an earlier thread
  const Tile& tile = tiles_[static_cast<std::size_t>(item.tile)];
  const ThreadBuffers& buffers = buffers_[at];
  for (std::size_t other = at + 1; other < begins_.size() - 1 && begins_[other].SameItem(item); ++other) {
    const std::int32_t end = begins_[other + 1].SameItem(item) ? begins_[other + 1].chunk : tile.chunks;
    float* kept = buffers_[other].kept;
    for (std::int32_t chunk = begins_[other].chunk; chunk < end; ++chunk, kept += PartialFloats()) {
      kernels_.merge(tile.num_tokens * tile.heads, PartialAt(kept), buffers.state);
    }
  }
  kernels_.finish(Describe(rows, tile, item.kv_head), buffers.state, Output(rows, tile, item.kv_head), rows.out_stride);
}

}  // namespace berth
