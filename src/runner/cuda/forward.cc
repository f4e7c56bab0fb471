#include "runner/cuda/forward.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/paged_decode.h"
#include "kernels/cuda/paged_prefill.h"
#include "kernels/cuda/plain_attention.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_kv_write.h"
#include "kernels/cuda/sampling.h"

namespace berth {

absl::Status Forward::Prepare() {
  products_.UseWorkspace(workspace_.gemm, workspace_.dequantized);
  for (const CudaWeights::Layer& layer : weights_.layers) {
    for (const CudaProjection* projection : {&layer.qkv, &layer.attn_output, &layer.gate_up, &layer.down}) {
      BERTH_TRY(products_.Prepare(*projection, /*float_output=*/false, shape_.max_step_tokens));
    }
  }
  return products_.Prepare(weights_.head, /*float_output=*/true, shape_.logit_group_rows);
}

absl::Status Forward::Compute(const StepCounts& counts, const StepArrays& arrays, cudaStream_t stream) {
  BERTH_CUDA_CALL(cuda::LaunchEmbedding,
                  {.token_ids = arrays.token_ids,
                   .table = weights_.embedding,
                   .output = workspace_.residual,
                   .num_tokens = counts.tokens,
                   .hidden_size = shape_.hidden},
                  stream);
  for (std::int32_t layer = 0; layer < shape_.layers; ++layer) BERTH_TRY(Layer(layer, counts, arrays, stream));
  return absl::OkStatus();
}

absl::Status Forward::Norm(const std::uint16_t* update, const std::uint16_t* weight, std::int32_t tokens,
                           cudaStream_t stream) {
  BERTH_CUDA_CALL(cuda::LaunchRmsNorm,
                  {.input = update == nullptr ? workspace_.residual : update,
                   .residual = update == nullptr ? nullptr : workspace_.residual,
                   .weight = weight,
                   .output = workspace_.normed,
                   .num_tokens = tokens,
                   .hidden_size = shape_.hidden,
                   .epsilon = shape_.norm_epsilon},
                  stream);
  return absl::OkStatus();
}

absl::Status Forward::Layer(std::int32_t index, const StepCounts& counts, const StepArrays& arrays,
                            cudaStream_t stream) {
  const CudaWeights::Layer& layer = weights_.layers[static_cast<std::size_t>(index)];
  const CudaWorkspace& w = workspace_;
  const std::int32_t tokens = counts.tokens;
  const cuda::KvCache cache = kv_->CacheOf(index);
  BERTH_TRY(Norm(index == 0 ? nullptr : w.update, layer.attn_norm, tokens, stream));
  BERTH_TRY(products_.Multiply(layer.qkv, w.normed, w.qkv, tokens, stream));
  BERTH_CUDA_CALL(cuda::LaunchRopeKvWrite,
                  {.qkv = w.qkv,
                   .positions = arrays.positions,
                   .slots = arrays.slots,
                   .cosines = weights_.cosines,
                   .sines = weights_.sines,
                   .cache = cache,
                   .num_tokens = tokens,
                   .num_q_heads = shape_.heads,
                   .rotary_pairs = shape_.rope_pairs,
                   .pairs = shape_.pairing},
                  stream);
  BERTH_TRY(Attend(cache, counts, arrays, stream));
  BERTH_TRY(products_.Multiply(layer.attn_output, w.attended, w.update, tokens, stream));
  BERTH_TRY(Norm(w.update, layer.ffn_norm, tokens, stream));
  BERTH_TRY(products_.Multiply(layer.gate_up, w.normed, w.gate_up, tokens, stream));
  BERTH_CUDA_CALL(cuda::LaunchGatedActivation,
                  {.gate_up = w.gate_up,
                   .output = w.activated,
                   .num_tokens = tokens,
                   .size = shape_.ffn,
                   .activation = cuda::Activation::kSilu},
                  stream);
  return products_.Multiply(layer.down, w.activated, w.update, tokens, stream);
}

float Forward::AttentionScale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }

absl::Status Forward::Attend(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                             cudaStream_t stream) {
  if (!shape_.tuned_attention) return PlainAttention(cache, counts, arrays, stream);
  BERTH_TRY(Decode(cache, counts, arrays, stream));
  return Prefill(cache, counts, arrays, stream);
}

absl::Status Forward::PlainAttention(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                                     cudaStream_t stream) {
  BERTH_CUDA_CALL(cuda::LaunchPlainAttention,
                  {.q = workspace_.qkv,
                   .q_stride = shape_.qkv_width(),
                   .cache = cache,
                   .block_tables = arrays.block_tables,
                   .sequences = arrays.token_rows,
                   .kv_lengths = arrays.token_lengths,
                   .output = workspace_.attended,
                   .max_blocks = shape_.MaxBlocks(counts.chunks),
                   .num_rows = counts.tokens,
                   .num_q_heads = shape_.heads,
                   .window = 0,
                   .scale = AttentionScale()},
                  stream);
  return absl::OkStatus();
}

// As many rows at a time as the buffer has room for; that changes nothing in what a row computes.
absl::Status Forward::Decode(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                             cudaStream_t stream) {
  const std::int32_t max_blocks = shape_.MaxBlocks(counts.chunks);
  const auto at_once =
      static_cast<std::int32_t>(std::int64_t{shape_.decode_rows_at_once} * shape_.max_chunks / counts.chunks);
  for (std::int32_t first = 0; first < counts.decode_rows(); first += at_once) {
    BERTH_CUDA_CALL(cuda::LaunchPagedDecode,
                    {.q = workspace_.qkv + std::int64_t{first} * shape_.qkv_width(),
                     .q_stride = shape_.qkv_width(),
                     .cache = cache,
                     .block_tables = arrays.block_tables + std::int64_t{first} * max_blocks,
                     .kv_lengths = arrays.kv_lengths + first,
                     .output = workspace_.attended + std::int64_t{first} * shape_.q_width(),
                     .partials = workspace_.partials,
                     .max_blocks = max_blocks,
                     .num_sequences = std::min(at_once, counts.decode_rows() - first),
                     .num_q_heads = shape_.heads,
                     .chunk_tokens = kDecodeChunkTokens,
                     .num_chunks = counts.chunks,
                     .scale = AttentionScale()},
                    stream);
  }
  return absl::OkStatus();
}

absl::Status Forward::Prefill(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                              cudaStream_t stream) {
  const std::int32_t max_blocks = shape_.MaxBlocks(counts.chunks);
  BERTH_CUDA_CALL(cuda::LaunchPagedPrefill,
                  {.q = workspace_.qkv,
                   .q_stride = shape_.qkv_width(),
                   .cache = cache,
                   .block_tables = arrays.block_tables + std::int64_t{counts.decode_rows()} * max_blocks,
                   .token_begins = arrays.token_begins,
                   .kv_lengths = arrays.kv_lengths + counts.decode_rows(),
                   .tiles = arrays.tiles,
                   .output = workspace_.attended,
                   .max_blocks = max_blocks,
                   .num_tiles = counts.tiles,
                   .num_q_heads = shape_.heads,
                   .window = 0,
                   .scale = AttentionScale()},
                  stream);
  return absl::OkStatus();
}

absl::Status Forward::Answer(const StepCounts& counts, const StepArrays& arrays, const LogitGroup& group,
                             cudaStream_t stream) {
  const CudaWorkspace& w = workspace_;
  const std::int32_t* tokens = arrays.logit_tokens + group.first_row;
  for (const auto& [from, to] : {std::pair{w.residual, w.wanted_residual}, std::pair{w.update, w.wanted_update}}) {
    BERTH_CUDA_CALL(
        cuda::LaunchEmbedding,
        {.token_ids = tokens, .table = from, .output = to, .num_tokens = group.rows, .hidden_size = shape_.hidden},
        stream);
  }
  BERTH_CUDA_CALL(cuda::LaunchRmsNorm,
                  {.input = w.wanted_update,
                   .residual = w.wanted_residual,
                   .weight = weights_.output_norm,
                   .output = w.wanted_update,
                   .num_tokens = group.rows,
                   .hidden_size = shape_.hidden,
                   .epsilon = shape_.norm_epsilon},
                  stream);
  BERTH_TRY(products_.Multiply(weights_.head, w.wanted_update, w.logits, group.rows, stream));
  BERTH_CUDA_CALL(cuda::LaunchSampling,
                  {.logits = w.logits,
                   .rows = arrays.sampling + group.first_row,
                   .ids = w.ids,
                   .biases = w.biases,
                   .token_ids = arrays.token_ids,
                   .raw_logits = w.raw_logits,
                   .tokens = w.drawn + group.first_row,
                   .logprobs = reinterpret_cast<float*>(w.drawn + counts.logit_rows) + group.first_row,
                   .top_ids = w.top_ids,
                   .top_logprobs = w.top_logprobs,
                   .num_rows = group.rows,
                   .vocab_size = shape_.vocab_size},
                  stream);
  return absl::OkStatus();
}

}  // namespace berth
