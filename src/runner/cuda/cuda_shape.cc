#include "runner/cuda/cuda_shape.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/head_dims.h"
#include "kernels/params/paged_decode.h"
#include "kernels/params/sampling.h"
#include "runner/cuda/cuda_call.h"

namespace berth {
namespace {

constexpr std::int32_t kMaxHidden = 16384;  // of the RMSNorm kernel
constexpr std::int32_t kMaxHeadDim = 256;
constexpr std::int32_t kMaxBlockTokens = 256;
// Bounds on memory, where more would serve only steps that hardly occur: these take several launches.
constexpr std::int64_t kLogitBytes = std::int64_t{256} << 20;
constexpr std::int64_t kPartialBytes = std::int64_t{128} << 20;
constexpr std::int32_t kMaxGroupRows = 256;
constexpr std::int64_t kStepIds = std::int64_t{1} << 20;

absl::Status Refuse(const char* what, std::int64_t value, const char* unit, const std::string& limit) {
  return absl::InvalidArgumentError(absl::StrCat(what, value, unit, ": ", limit));
}

absl::Status CheckOptions(const CudaBackendOptions& options) {
  if (options.device < 0) return absl::InvalidArgumentError(absl::StrCat("no CUDA device ", options.device));
  if (options.kv_dtype == KvDtype::kFloat32) {
    return absl::InvalidArgumentError("a KV cache in float32 is not served on CUDA: bf16 or int8");
  }
  if (options.pool.host_blocks < 0)
    return Refuse("a host KV pool of ", options.pool.host_blocks, " blocks", "at least 0");
  const auto block_tokens = static_cast<std::uint32_t>(options.pool.block_tokens);
  if (options.pool.block_tokens < 2 || options.pool.block_tokens > kMaxBlockTokens ||
      !std::has_single_bit(block_tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("KV blocks of ", options.pool.block_tokens,
                                                   " tokens: a power of two from 2 to ", kMaxBlockTokens));
  }
  if (options.max_step_tokens < 1) return Refuse("steps of ", options.max_step_tokens, " tokens", "at least 1");
  if (options.max_sequences < 1) return Refuse("steps of ", options.max_sequences, " sequences", "at least 1");
  if (options.max_top_logprobs < 0) return Refuse("", options.max_top_logprobs, " top log-probabilities", "at least 0");
  return absl::OkStatus();
}

absl::Status CheckModel(const ModelConfig& config) {
  const auto multiples = [](std::int32_t most) {
    return absl::StrCat("multiples of 8 up to ", most, " are served on CUDA");
  };
  if (config.hidden % 8 != 0 || config.hidden > kMaxHidden) {
    return Refuse("a hidden size of ", config.hidden, "", multiples(kMaxHidden));
  }
  if (config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) {
    return Refuse("heads of ", config.head_dim, " elements", multiples(kMaxHeadDim));
  }
  if (config.rope_dims % 4 != 0) {
    return Refuse("heads that rotate ", config.rope_dims, " elements", "multiples of 4 are served on CUDA");
  }
  if (config.vocab_size > cuda::kMaxSamplingVocab) {
    return Refuse("a vocabulary of ", config.vocab_size, " tokens",
                  absl::StrCat("at most ", cuda::kMaxSamplingVocab, " are served on CUDA"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaShape> ReadCudaShape(const Model& model, const CudaBackendOptions& options) {
  BERTH_TRY(CheckOptions(options));
  const ModelConfig& config = model.config;
  BERTH_TRY(CheckModel(config));
  CudaShape shape;
  shape.layers = config.layers;
  shape.hidden = config.hidden;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.ffn = static_cast<std::int32_t>(CeilDiv(config.ffn, 16) * 16);
  shape.vocab_size = config.vocab_size;
  shape.context_tokens = config.context_tokens;
  shape.rope_pairs = config.rope_dims / 2;
  shape.pairing = config.rope_pairing == RopePairing::kAdjacent ? cuda::RopePairs::kAdjacent : cuda::RopePairs::kHalves;
  shape.norm_epsilon = config.norm_epsilon;
  shape.kv_dtype = options.kv_dtype;
  shape.pool = options.pool;
  shape.max_step_tokens = options.max_step_tokens;
  shape.max_rows = std::min(options.max_sequences, options.max_step_tokens);
  shape.max_logit_rows = options.max_step_tokens + options.max_sequences;
  shape.max_top_logprobs = std::min(options.max_top_logprobs, config.vocab_size);

  const std::int64_t logit_row_bytes = std::int64_t{config.vocab_size} * static_cast<std::int64_t>(sizeof(float));
  shape.logit_group_rows = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(kLogitBytes / logit_row_bytes, 1, std::min(kMaxGroupRows, shape.max_logit_rows)));
  shape.max_chunks = static_cast<std::int32_t>(CeilDiv(config.context_tokens, kDecodeChunkTokens));
  const std::int64_t row_partial_bytes = std::int64_t{config.heads} * shape.max_chunks *
                                         (config.head_dim + cuda::kPartialExtraFloats) *
                                         static_cast<std::int64_t>(sizeof(float));
  shape.decode_rows_at_once =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(kPartialBytes / row_partial_bytes, 1, shape.max_rows));
  shape.max_step_ids = static_cast<std::int32_t>(
      std::max(kStepIds, std::int64_t{config.context_tokens} + 2 * std::int64_t{config.vocab_size}));
  shape.tuned_attention = cuda::IsTunedHeadDim(config.head_dim);
  return shape;
}

}  // namespace berth
