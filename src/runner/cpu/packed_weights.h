// A model's weights as the kernels want them: packed once, in memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/ops.h"
#include "model/model.h"
#include "runner/cpu/mapped_memory.h"
#include "runner/memory_layout.h"

namespace berth {

// Input rows as the matrices of one projection want them. Where these differ in form, each form has its own array of
// rows.
struct PreparedRows {
  std::byte* data = nullptr;
  std::int32_t capacity = 0;  // rows
};

// Matrices that multiply the same input rows; their outputs lie side by side in one output row. A model may mix
// formats, so an input row is prepared once per form of activations that any of them wants.
//
// Where rounding the input to int8 shows most, a matrix multiplies it in two terms (activation_residual.h): of n input
// rows, prepared row n + i is what preparing row i lost, output row n + i its product, and AddSecondTerm sums them. Few
// rows cost no more memory traffic for it.
struct Projection {
  struct Form {
    cpu::PackedKind kind = cpu::PackedKind::kPanelF32;
    std::size_t at = 0;         // of the form's rows: at · capacity bytes after the data
    std::size_t row_bytes = 0;  // distance between them
    bool two_terms = false;     // for some matrix
  };
  struct Part {
    cpu::PackedMatrix matrix;
    std::int32_t first_output = 0;
    std::size_t form = 0;  // into forms
    bool two_terms = false;
  };

  std::vector<Part> parts;
  std::vector<Form> forms;
  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
  std::int64_t cost = 0;      // of all panels: one for each term
  std::size_t row_bytes = 0;  // of all forms of a row

  // Prepares row `row` of `count`, where two terms are wanted also row count + row. `scratch` holds an input row.
  void PrepareRow(const cpu::MatMulKernels& kernels, const float* x, const PreparedRows& rows, std::int64_t row,
                  std::int64_t count, float* scratch) const;
  // Share `share` of `shares` of the output columns for `count` input rows; y's rows lie `outputs` floats apart.
  void Multiply(const cpu::MatMulKernels& kernels, const PreparedRows& rows, std::int32_t count, float* y, int share,
                int shares) const;
  // Output row `row` of `count` += what the second terms gave, where there are any.
  void AddSecondTerm(const cpu::OpsKernels& ops, float* y, std::int64_t row, std::int64_t count) const;

 private:
  static std::byte* RowOf(const Form& form, const PreparedRows& rows, std::int64_t row);
};

class PackedWeights {
 public:
  struct Layer {
    const float* attn_norm = nullptr;
    Projection qkv;
    Projection attn_output;
    const float* ffn_norm = nullptr;
    Projection gate_up;
    Projection down;
  };

  // Copies what it needs: the model may be closed afterwards.
  static absl::StatusOr<PackedWeights> Pack(const Model& model, bool float32, ThreadPool& pool);

  const std::vector<Layer>& layers() const { return layers_; }
  const float* output_norm() const { return output_norm_; }
  const Projection& head() const { return head_; }

  // The embedding of a token: `hidden` floats.
  void Embed(TokenId token, float* dst) const;

  std::size_t bytes() const { return memory_.size(); }

 private:
  struct PackJob {
    const GgufTensor* tensor;
    cpu::PackedMatrix matrix;
    std::byte* dst;
  };

  PackedWeights() = default;

  std::size_t LayOut(const Model& model, bool float32, std::byte* base);
  struct Source {
    const GgufTensor* tensor;
    bool two_terms = false;  // where its kind rounds inputs at all
  };
  Projection TakeProjection(std::initializer_list<Source> sources, bool float32, MemoryLayout& layout);
  static const float* TakeVector(const GgufTensor& tensor, MemoryLayout& layout);

  MappedMemory memory_;
  std::vector<Layer> layers_;
  const float* output_norm_ = nullptr;
  Projection head_;
  // The embedding as it is in the file; nullptr where it is the head's matrix too.
  cpu::WeightFormat embedding_format_ = cpu::WeightFormat::kF32;
  const std::byte* embedding_ = nullptr;
  std::size_t embedding_row_bytes_ = 0;
  std::int32_t hidden_ = 0;
  std::vector<PackJob> jobs_;  // while packing
};

}  // namespace berth
