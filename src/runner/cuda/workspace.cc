#include "runner/cuda/workspace.h"

#include "kernels/params/paged_decode.h"
#include "runner/cuda/gemm.h"
#include "runner/cuda/step_arrays.h"

namespace berth {

std::size_t MostInputBytes(const CudaShape& shape) {
  MemoryLayout layout(nullptr, kStepAlignment);
  LayOutStep(shape, MostOf(shape), layout);
  return layout.bytes();
}

std::size_t MostTopEntries(const CudaShape& shape) {
  return static_cast<std::size_t>(shape.max_logit_rows) * static_cast<std::size_t>(shape.max_top_logprobs);
}

CudaWorkspace LayOutWorkspace(const CudaShape& shape, std::int64_t dequantized_elements, MemoryLayout& layout) {
  const auto tokens = static_cast<std::size_t>(shape.max_step_tokens);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto ffn = static_cast<std::size_t>(shape.ffn);
  const auto group = static_cast<std::size_t>(shape.logit_group_rows);
  const auto ids = static_cast<std::size_t>(shape.max_step_ids);
  const auto partial_floats = static_cast<std::size_t>(shape.head_dim + cuda::kPartialExtraFloats);
  CudaWorkspace workspace;
  workspace.residual = layout.Take<std::uint16_t>(tokens, hidden);
  workspace.normed = layout.Take<std::uint16_t>(tokens, hidden);
  workspace.update = layout.Take<std::uint16_t>(tokens, hidden);
  workspace.qkv = layout.Take<std::uint16_t>(tokens, static_cast<std::size_t>(shape.qkv_width()));
  workspace.attended = layout.Take<std::uint16_t>(tokens, static_cast<std::size_t>(shape.q_width()));
  workspace.gate_up = layout.Take<std::uint16_t>(tokens, 2 * ffn);
  workspace.activated = layout.Take<std::uint16_t>(tokens, ffn);
  workspace.wanted_residual = layout.Take<std::uint16_t>(group, hidden);
  workspace.wanted_update = layout.Take<std::uint16_t>(group, hidden);
  workspace.logits = layout.Take<float>(group, static_cast<std::size_t>(shape.vocab_size));
  workspace.partials =
      layout.Take<float>(static_cast<std::size_t>(shape.decode_rows_at_once) * static_cast<std::size_t>(shape.heads),
                         static_cast<std::size_t>(shape.max_chunks) * partial_floats);
  workspace.dequantized = layout.Take<std::uint16_t>(static_cast<std::size_t>(dequantized_elements));
  workspace.gemm = layout.Take<std::byte>(Gemms::kWorkspaceBytes);
  workspace.inputs = layout.Take<std::byte>(MostInputBytes(shape));
  workspace.ids = layout.Take<std::int32_t>(ids);
  workspace.biases = layout.Take<float>(ids);
  workspace.raw_logits = layout.Take<float>(ids);
  workspace.drawn = layout.Take<std::int32_t>(2, static_cast<std::size_t>(shape.max_logit_rows));
  workspace.top_ids = layout.Take<std::int32_t>(MostTopEntries(shape));
  workspace.top_logprobs = layout.Take<float>(MostTopEntries(shape));
  return workspace;
}

}  // namespace berth
