#include "runner/cpu/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/activation_residual.h"
#include "runner/weight_format.h"

namespace berth {
namespace {

// Input rows multiplied at a time: their prepared form stays in the second-level cache while the panels pass by.
constexpr std::int32_t kRowsAtOnce = 256;

}  // namespace

std::byte* Projection::RowOf(const Form& form, const PreparedRows& rows, std::int64_t row) {
  return rows.data + form.at * static_cast<std::size_t>(rows.capacity) + form.row_bytes * static_cast<std::size_t>(row);
}

void Projection::PrepareRow(const cpu::MatMulKernels& kernels, const float* x, const PreparedRows& rows,
                            std::int64_t row, std::int64_t count, float* scratch) const {
  for (const Form& form : forms) {
    std::byte* prepared = RowOf(form, rows, row);
    kernels.prepare_row(form.kind, x, inputs, prepared);
    if (!form.two_terms) continue;
    cpu::ActivationResidual(x, inputs, prepared, scratch);
    kernels.prepare_row(form.kind, scratch, inputs, RowOf(form, rows, count + row));
  }
}

void Projection::AddSecondTerm(const cpu::OpsKernels& ops, float* y, std::int64_t row, std::int64_t count) const {
  for (const Part& part : parts) {
    if (!part.two_terms) continue;
    ops.add(y + (count + row) * outputs + part.first_output, part.matrix.n, y + row * outputs + part.first_output);
  }
}

void Projection::Multiply(const cpu::MatMulKernels& kernels, const PreparedRows& rows, std::int32_t count, float* y,
                          int share, int shares) const {
  const std::int64_t begin = cost * share / shares;
  const std::int64_t end = cost * (share + 1) / shares;
  for (std::int32_t row = 0; row < 2 * count; row += kRowsAtOnce) {
    std::int64_t part_begin = 0;
    for (const Part& part : parts) {
      const std::int32_t panels = cpu::NumPanels(part.matrix.n);
      const std::int32_t terms = part.two_terms ? 2 : 1;
      const auto panel_at = [&](std::int64_t place) {
        return static_cast<std::int32_t>(std::clamp<std::int64_t>((place - part_begin) / terms, 0, panels));
      };
      const std::int32_t from = panel_at(begin);
      const std::int32_t to = panel_at(end);
      const std::int32_t rows_left = terms * count - row;
      if (from < to && rows_left > 0) {
        kernels.matmul(part.matrix, RowOf(forms[part.form], rows, row), std::min(kRowsAtOnce, rows_left),
                       y + static_cast<std::int64_t>(row) * outputs + part.first_output, outputs, from, to);
      }
      part_begin += std::int64_t{panels} * terms;
    }
  }
}

absl::StatusOr<PackedWeights> PackedWeights::Pack(const Model& model, bool float32, ThreadPool& pool) {
  PackedWeights weights;
  absl::StatusOr<MappedMemory> memory =
      MappedMemory::Map(weights.LayOut(model, float32, nullptr), absl::StrCat("the weights of ", model.file->path()));
  if (!memory.ok()) return memory.status();
  weights.memory_ = *std::move(memory);
  weights.memory_.PreferLargePages();
  weights.LayOut(model, float32, weights.memory_.data());
  pool.Run([&](int thread) {
    for (const PackJob& job : weights.jobs_) {
      const std::int64_t panels = cpu::NumPanels(job.matrix.n);
      cpu::PackPanels(WeightFormatOf(job.tensor->type), job.tensor->data.data(), job.matrix.kind, job.matrix.n,
                      job.matrix.k, static_cast<int>(panels * thread / pool.num_threads()),
                      static_cast<int>(panels * (thread + 1) / pool.num_threads()), job.dst);
    }
  });
  weights.jobs_.clear();
  return weights;
}

std::size_t PackedWeights::LayOut(const Model& model, bool float32, std::byte* base) {
  MemoryLayout layout(base);
  layers_.clear();
  jobs_.clear();
  for (const LayerWeights& from : model.weights.layers) {
    Layer& layer = layers_.emplace_back();
    layer.attn_norm = TakeVector(*from.attn_norm, layout);
    // Keys and values are few outputs that every later token reads: rounding their input shows more than anywhere else
    // but in a logit.
    layer.qkv = TakeProjection({{from.q}, {from.k, true}, {from.v, true}}, float32, layout);
    layer.attn_output = TakeProjection({{from.attn_output}}, float32, layout);
    layer.ffn_norm = TakeVector(*from.ffn_norm, layout);
    layer.gate_up = TakeProjection({{from.ffn_gate}, {from.ffn_up}}, float32, layout);
    layer.down = TakeProjection({{from.ffn_down}}, float32, layout);
  }
  output_norm_ = TakeVector(*model.weights.output_norm, layout);
  head_ = TakeProjection({{model.weights.output, true}}, float32, layout);

  hidden_ = model.config.hidden;
  embedding_ = nullptr;
  if (model.weights.token_embedding == model.weights.output) return layout.bytes();
  const GgufTensor& embedding = *model.weights.token_embedding;
  embedding_format_ = WeightFormatOf(embedding.type);
  embedding_row_bytes_ = embedding.data.size() / static_cast<std::size_t>(embedding.rows());
  auto* copy = layout.Take<std::byte>(embedding.data.size());
  if (copy != nullptr) std::memcpy(copy, embedding.data.data(), embedding.data.size());
  embedding_ = copy;
  return layout.bytes();
}

Projection PackedWeights::TakeProjection(std::initializer_list<Source> sources, bool float32, MemoryLayout& layout) {
  Projection projection;
  for (const Source& source : sources) {
    cpu::PackedMatrix matrix;
    matrix.kind = cpu::ChoosePackedKind(WeightFormatOf(source.tensor->type), float32);
    matrix.n = static_cast<std::int32_t>(source.tensor->rows());
    matrix.k = static_cast<std::int32_t>(source.tensor->cols());
    auto* dst = layout.Take<std::byte>(cpu::PackedBytes(matrix.kind, matrix.n, matrix.k));
    matrix.data = dst;
    jobs_.push_back({source.tensor, matrix, dst});

    const auto same = std::find_if(projection.forms.begin(), projection.forms.end(), [&](const Projection::Form& form) {
      return cpu::SameActivations(form.kind, matrix.kind);
    });
    const auto form = static_cast<std::size_t>(same - projection.forms.begin());
    const bool two_terms = source.two_terms && cpu::RoundsActivations(matrix.kind);
    projection.parts.push_back({matrix, projection.outputs, form, two_terms});
    if (same == projection.forms.end()) {
      const std::size_t row_bytes = cpu::ActivationBytes(matrix.kind, matrix.k);
      projection.forms.push_back({matrix.kind, projection.row_bytes, row_bytes, false});
      projection.row_bytes += row_bytes;
    }
    projection.forms[form].two_terms |= two_terms;
    projection.inputs = matrix.k;
    projection.outputs += matrix.n;
    projection.cost += std::int64_t{cpu::NumPanels(matrix.n)} * (two_terms ? 2 : 1);
  }
  return projection;
}

const float* PackedWeights::TakeVector(const GgufTensor& tensor, MemoryLayout& layout) {
  auto* copy = layout.Take<float>(static_cast<std::size_t>(tensor.elements()));
  if (copy != nullptr) std::memcpy(copy, tensor.data.data(), tensor.data.size());
  return copy;
}

void PackedWeights::Embed(TokenId token, float* dst) const {
  if (embedding_ == nullptr) return cpu::UnpackRow(head_.parts.front().matrix, token, dst);
  cpu::Dequantize(embedding_format_, embedding_ + static_cast<std::size_t>(token) * embedding_row_bytes_, hidden_, dst);
}

}  // namespace berth
