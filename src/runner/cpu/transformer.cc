#include "runner/cpu/transformer.h"

#include <algorithm>
#include <utility>

namespace berth {

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const Model& model, const CpuBackendOptions& options,
                                                                 cpu::CpuLevel level, ThreadPool* pool) {
  absl::StatusOr<KvStore> kv = KvStore::Create(model.config.kv_shape(), options.kv_dtype, options.pool);
  if (!kv.ok()) return kv.status();
  absl::StatusOr<PackedWeights> weights = PackedWeights::Pack(model, options.compute == ComputeMode::kFloat32, *pool);
  if (!weights.ok()) return weights.status();
  std::unique_ptr<Transformer> transformer(
      new Transformer(model, *std::move(weights), *std::move(kv), level, pool, options.stage_times));
  if (absl::Status status = transformer->MapWorkspace(options.max_step_tokens); !status.ok()) return status;
  return transformer;
}

Transformer::Transformer(const Model& model, PackedWeights weights, KvStore kv, cpu::CpuLevel level, ThreadPool* pool,
                         StageTimes* stage_times)
    : config_(model.config),
      pool_(pool),
      matmul_(cpu::GetMatMulKernels(level)),
      ops_(cpu::GetOpsKernels(level)),
      weights_(std::move(weights)),
      kv_(std::move(kv)),
      angles_(model),
      attention_({config_.heads, config_.kv_heads, config_.head_dim, config_.context_tokens}, level,
                 pool->num_threads()),
      logits_(config_.vocab_size, ops_, pool->num_threads()),
      normed_(static_cast<std::size_t>(pool->num_threads())),
      scratch_(normed_.size()),
      activated_(normed_.size()),
      clock_(stage_times) {}

absl::Status Transformer::MapWorkspace(std::int32_t max_step_tokens) {
  absl::StatusOr<MappedMemory> memory =
      MappedMemory::Map(LayOut(max_step_tokens, nullptr), "the activations of a step");
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  LayOut(max_step_tokens, memory_.data());
  return absl::OkStatus();
}

std::size_t Transformer::LayOut(std::int32_t max_step_tokens, std::byte* base) {
  MemoryLayout layout(base);
  const auto tokens = static_cast<std::size_t>(max_step_tokens);
  const auto hidden = static_cast<std::size_t>(config_.hidden);
  const auto ffn = static_cast<std::size_t>(config_.ffn);
  std::size_t row_bytes = 0;
  std::size_t widest = 0;
  std::int32_t qkv_outputs = 0;
  for (const PackedWeights::Layer& layer : weights_.layers()) {
    for (const Projection* projection : {&layer.qkv, &layer.attn_output, &layer.gate_up, &layer.down}) {
      row_bytes = std::max(row_bytes, projection->row_bytes);
      widest = std::max(widest, static_cast<std::size_t>(projection->inputs));
    }
    qkv_outputs = layer.qkv.outputs;
  }
  residual_ = layout.Take<float>(tokens, hidden);
  prepared_ = {layout.Take<std::byte>(2 * tokens, row_bytes), 2 * max_step_tokens};
  qkv_ = layout.Take<float>(2 * tokens, static_cast<std::size_t>(qkv_outputs));
  attended_ =
      layout.Take<float>(tokens, static_cast<std::size_t>(config_.heads) * static_cast<std::size_t>(config_.head_dim));
  gate_up_ = layout.Take<float>(tokens, 2 * ffn);
  update_ = layout.Take<float>(tokens, hidden);
  cosines_ = layout.Take<float>(tokens, static_cast<std::size_t>(angles_.pairs()));
  sines_ = layout.Take<float>(tokens, static_cast<std::size_t>(angles_.pairs()));
  prepared_logits_ = {layout.Take<std::byte>(2 * LogitStage::kGroupRows, weights_.head().row_bytes),
                      2 * LogitStage::kGroupRows};
  for (float*& normed : normed_) normed = layout.Take<float>(hidden);
  for (float*& scratch : scratch_) scratch = layout.Take<float>(widest);
  for (float*& activated : activated_) activated = layout.Take<float>(ffn);
  attention_.LayOut(layout);
  logits_.LayOut(layout);
  return layout.bytes();
}

void Transformer::Run(const StepInputs& inputs, StepResult* result) {
  inputs_ = &inputs;
  attention_.Plan(inputs);
  logits_.Begin(inputs.logit_rows().size(), result);
  clock_.Start();
  pool_->Run([this](int thread) { Forward(thread); });
  logits_.Finish();
}

// Calls function(i) for this thread's part of 0 .. count - 1.
template <typename Function>
void Transformer::ForEachShare(std::int64_t count, int thread, const Function& function) const {
  const std::int64_t threads = pool_->num_threads();
  for (std::int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i) function(i);
}

void Transformer::End(Stage stage, int thread) {
  pool_->Barrier();
  if (thread == 0) clock_.Mark(stage);
}

void Transformer::Forward(int thread) {
  CopyBlocks(thread);
  if (thread == 0) clock_.Mark(Stage::kCopies);
  if (inputs_->num_tokens() == 0) return;
  EmbedTokens(thread);
  End(Stage::kRows, thread);
  for (std::int32_t layer = 0; layer < config_.layers; ++layer) ForwardLayer(layer, thread);
  AnswerLogitRows(thread);
}

// A thread has layers of its own, so the copies keep their order without waiting for each other.
void Transformer::CopyBlocks(int thread) {
  const int threads = pool_->num_threads();
  const KvStore::Layers layers = {config_.layers * thread / threads, config_.layers * (thread + 1) / threads};
  for (const SwapCopy& copy : inputs_->swap_out()) kv_.SwapOut(layers, copy);
  for (const SwapCopy& copy : inputs_->swap_in()) kv_.SwapIn(layers, copy);
  for (const BlockCopy& copy : inputs_->block_copies()) kv_.CopyBlock(layers, copy.from, copy.to);
}

// Between two barriers threads write what no other reads: rows of their own, or columns of their own.
void Transformer::ForwardLayer(std::int32_t index, int thread) {
  const PackedWeights::Layer& layer = weights_.layers()[static_cast<std::size_t>(index)];
  const std::int32_t tokens = inputs_->num_tokens();
  const int threads = pool_->num_threads();

  layer.qkv.Multiply(matmul_, prepared_, tokens, qkv_, thread, threads);
  End(Stage::kProjections, thread);
  RotateAndStore(index, thread);
  End(Stage::kRows, thread);
  Attend(index, thread);
  End(Stage::kAttention, thread);
  PrepareAttentionOutput(layer.attn_output, thread);
  End(Stage::kRows, thread);
  layer.attn_output.Multiply(matmul_, prepared_, tokens, update_, thread, threads);
  End(Stage::kProjections, thread);
  AddResidual(layer.ffn_norm, layer.gate_up, thread);
  End(Stage::kRows, thread);
  layer.gate_up.Multiply(matmul_, prepared_, tokens, gate_up_, thread, threads);
  End(Stage::kProjections, thread);
  Activate(layer.down, thread);
  End(Stage::kRows, thread);
  layer.down.Multiply(matmul_, prepared_, tokens, update_, thread, threads);
  End(Stage::kProjections, thread);
  if (index + 1 < config_.layers) {
    const PackedWeights::Layer& next = weights_.layers()[static_cast<std::size_t>(index) + 1];
    AddResidual(next.attn_norm, next.qkv, thread);
  } else {
    ForEachShare(tokens, thread, [&](std::int64_t token) {
      ops_.add(update_ + token * config_.hidden, config_.hidden, Residual(token));
    });
  }
  End(Stage::kRows, thread);
}

void Transformer::NormAndPrepare(const float* norm, const Projection& next, const float* x, const PreparedRows& rows,
                                 std::int64_t row, std::int64_t count, int thread) {
  const auto at = static_cast<std::size_t>(thread);
  ops_.rms_norm(x, norm, config_.norm_epsilon, config_.hidden, normed_[at]);
  next.PrepareRow(matmul_, normed_[at], rows, row, count, scratch_[at]);
}

void Transformer::EmbedTokens(int thread) {
  const PackedWeights::Layer& first = weights_.layers().front();
  ForEachShare(inputs_->num_tokens(), thread, [&](std::int64_t token) {
    const auto at = static_cast<std::size_t>(token);
    weights_.Embed(inputs_->token_ids()[at], Residual(token));
    angles_.Fill(inputs_->positions()[at], cosines_ + token * angles_.pairs(), sines_ + token * angles_.pairs());
    NormAndPrepare(first.attn_norm, first.qkv, Residual(token), prepared_, token, inputs_->num_tokens(), thread);
  });
}

void Transformer::RotateAndStore(std::int32_t layer, int thread) {
  const Projection& qkv = weights_.layers()[static_cast<std::size_t>(layer)].qkv;
  const std::int64_t q_width = std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t kv_width = std::int64_t{config_.kv_heads} * config_.head_dim;
  const auto rope = config_.rope_pairing == RopePairing::kAdjacent ? ops_.rope_adjacent : ops_.rope_halves;
  ForEachShare(inputs_->num_tokens(), thread, [&](std::int64_t token) {
    float* q = qkv_ + token * (q_width + 2 * kv_width);
    float* k = q + q_width;
    const float* cosines = cosines_ + token * angles_.pairs();
    const float* sines = sines_ + token * angles_.pairs();
    qkv.AddSecondTerm(ops_, qkv_, token, inputs_->num_tokens());
    // Queries and keys lie side by side: one run of heads.
    rope(q, config_.heads + config_.kv_heads, config_.head_dim, angles_.pairs(), cosines, sines);
    kv_.Write(ops_, layer, inputs_->slots()[static_cast<std::size_t>(token)], k, k + kv_width);
  });
}

void Transformer::Attend(std::int32_t layer, int thread) {
  AttentionStage::Rows rows;
  rows.kv = &kv_;
  rows.layer = layer;
  rows.q = qkv_;
  rows.q_stride = weights_.layers()[static_cast<std::size_t>(layer)].qkv.outputs;
  rows.out = attended_;
  rows.out_stride = std::int64_t{config_.heads} * config_.head_dim;
  attention_.Attend(rows, thread);
  if (attention_.has_split()) {
    pool_->Barrier();
    attention_.MergeSplit(rows, thread);
  }
}

void Transformer::PrepareAttentionOutput(const Projection& projection, int thread) {
  ForEachShare(inputs_->num_tokens(), thread, [&](std::int64_t token) {
    projection.PrepareRow(matmul_, attended_ + token * projection.inputs, prepared_, token, inputs_->num_tokens(),
                          scratch_[static_cast<std::size_t>(thread)]);
  });
}

void Transformer::Activate(const Projection& projection, int thread) {
  float* activated = activated_[static_cast<std::size_t>(thread)];
  float* scratch = scratch_[static_cast<std::size_t>(thread)];
  ForEachShare(inputs_->num_tokens(), thread, [&](std::int64_t token) {
    const float* gate = gate_up_ + token * 2 * config_.ffn;
    ops_.swiglu(gate, gate + config_.ffn, config_.ffn, activated);
    projection.PrepareRow(matmul_, activated, prepared_, token, inputs_->num_tokens(), scratch);
  });
}

void Transformer::AddResidual(const float* norm, const Projection& next, int thread) {
  ForEachShare(inputs_->num_tokens(), thread, [&](std::int64_t token) {
    ops_.add(update_ + token * config_.hidden, config_.hidden, Residual(token));
    NormAndPrepare(norm, next, Residual(token), prepared_, token, inputs_->num_tokens(), thread);
  });
}

void Transformer::AnswerLogitRows(int thread) {
  const std::span<const LogitRow> rows = inputs_->logit_rows();
  const Projection& head = weights_.head();
  for (std::size_t begin = 0; begin < rows.size(); begin += LogitStage::kGroupRows) {
    const std::span<const LogitRow> group =
        rows.subspan(begin, std::min<std::size_t>(LogitStage::kGroupRows, rows.size() - begin));
    const auto count = static_cast<std::int32_t>(group.size());
    ForEachShare(count, thread, [&](std::int64_t i) {
      const float* x = Residual(group[static_cast<std::size_t>(i)].token_index);
      NormAndPrepare(weights_.output_norm(), head, x, prepared_logits_, i, count, thread);
    });
    // Also keeps these logits from overwriting the last group's while a thread still reads them.
    End(Stage::kRows, thread);
    head.Multiply(matmul_, prepared_logits_, count, logits_.logits(), thread, pool_->num_threads());
    End(Stage::kHead, thread);
    ForEachShare(count, thread, [&](std::int64_t i) {
      head.AddSecondTerm(ops_, logits_.logits(), i, count);
      logits_.Answer(group[static_cast<std::size_t>(i)], begin + static_cast<std::size_t>(i), thread);
    });
    if (thread == 0) clock_.Mark(Stage::kSampling);
  }
}

}  // namespace berth
