// The numbers that every size on the device follows from.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "berth/kv.h"
#include "kernels/params/rope_kv_write.h"
#include "model/model.h"
#include "runner/cuda/cuda_backend.h"

namespace berth {

// Decode attention cuts a sequence at multiples of this; a constant, so that a sequence's arithmetic is always the
// same. A multiple of each block size.
inline constexpr std::int32_t kDecodeChunkTokens = 256;

struct CudaShape {
  // Of the model.
  std::int32_t layers = 0;
  std::int32_t hidden = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t ffn = 0;  // with what was added to make it a multiple of 16: zeros in the weights
  std::int32_t vocab_size = 0;
  std::int32_t context_tokens = 0;
  std::int32_t rope_pairs = 0;
  cuda::RopePairs pairing = cuda::RopePairs::kAdjacent;
  float norm_epsilon = 0;

  // Of the options.
  KvDtype kv_dtype = KvDtype::kBf16;
  KvPoolShape pool;
  std::int32_t max_step_tokens = 0;
  std::int32_t max_rows = 0;          // of a step
  std::int32_t max_logit_rows = 0;    // every token's log-probability, and draws where choices part
  std::int32_t max_top_logprobs = 0;  // of one logit row

  // What follows.
  std::int32_t logit_group_rows = 0;     // logits that exist at once
  std::int32_t max_chunks = 0;           // of a sequence in decode attention
  std::int32_t decode_rows_at_once = 0;  // whose partial results fit at max_chunks
  std::int32_t max_step_ids = 0;         // ids of histories, bans and biases that a launch of the sampler reads
  // The head dimension has kernels that use the tensor cores.
  bool tuned_attention = false;

  std::int32_t q_width() const { return heads * head_dim; }
  std::int32_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Entries of a row's block table where the longest sequence of a step has so many chunks.
  std::int32_t MaxBlocks(std::int32_t chunks) const { return chunks * (kDecodeChunkTokens / pool.block_tokens); }
};

// InvalidArgument, in one line, for options or a model that the kernels do not serve; the number of blocks in the pool
// is not looked at.
absl::StatusOr<CudaShape> ReadCudaShape(const Model& model, const CudaBackendOptions& options);

}  // namespace berth
