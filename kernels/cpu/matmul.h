// Matrix products y = x · Wᵀ for the transformer's weights: packed once at load, multiplied with activations that are
// quantised to int8 per 32 elements (quantised weights) or kept in float32 (float weights, and everything in float32
// mode).
//
// Batch invariance: each output y[m][n] is one fixed sequence of operations over K, whatever M, whichever thread and
// however the columns are split. Threads split N by panels.
//   float kinds:   y = fma(w[k], x[k], y) for k ascending, from 0.
//   integer kinds: y = fma(Σ w·x of the block's codes, w's scale · x's scale, y) for blocks ascending, from 0; kPanelU4
//                  then y = fma(minimum, scaled sum of x, y); kPanelU8x16 takes the block's halves one after the other.
// All levels follow the same definition with the same roundings, so they agree bit for bit (NaN payloads aside).
//
// Scales and minima are used as the file has them, in float32. A block of activations with an infinity or a NaN makes
// its row's outputs NaN; one whose magnitudes are all below 2^-120 counts as zeros.
//
// Raw pointers, no checks: the caller (src/runner) validates shapes. Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_level.h"
#include "kernels/cpu/dequantize.h"

namespace berth::cpu {

// Outputs are packed in panels of this many; a matrix whose row count is no multiple has a padded last panel.
inline constexpr int kPanelColumns = 16;

// The layout a matrix is packed into. kFloat32 mode packs every format as kPanelF32.
enum class PackedKind : std::uint8_t {
  kPanelF32,  // float weights, float32 activations
  kPanelF16,
  kPanelBF16,
  kPanelU4,           // 4-bit codes with scale and minimum per 32: Q4_1
  kPanelU4Symmetric,  // 4-bit codes less 8 with scale per 32: Q4_0
  kPanelU8,           // 8-bit codes less 128 with scale per 32: Q5_0, Q8_0
  kPanelU8x16,        // 8-bit codes less 128 with scale per 16: Q6_K
};

// `float32`: the mode in which nothing is approximated. K of a quantised format is a multiple of its block; float
// formats take any K.
PackedKind ChoosePackedKind(WeightFormat format, bool float32);

struct PackedMatrix {
  PackedKind kind = PackedKind::kPanelF32;
  std::int32_t n = 0;               // outputs
  std::int32_t k = 0;               // inputs
  const std::byte* data = nullptr;  // 64-byte aligned, PackedBytes(kind, n, k) long
};

inline constexpr int NumPanels(std::int32_t n) { return (n + kPanelColumns - 1) / kPanelColumns; }
std::size_t PackedBytes(PackedKind kind, std::int32_t n, std::int32_t k);

// Packs panels [panel_begin, panel_end) of a matrix of `format` stored row by row at src into dst (the start of the
// whole packed matrix). Panels are independent: threads may share the work. Every byte of the panels is written.
// REQUIRES: kind is kPanelF32 or ChoosePackedKind(format, false).
void PackPanels(WeightFormat format, const void* src, PackedKind kind, std::int32_t n, std::int32_t k, int panel_begin,
                int panel_end, std::byte* dst);

// One row of a packed matrix (all panels packed): w.k floats, exactly what Dequantize gives for the row as it was
// stored. Reads a few bytes of each of the panel's lines: for single rows, not for whole matrices.
void UnpackRow(const PackedMatrix& w, std::int32_t row, float* dst);

// Activations as a product wants them. One row of K floats becomes ActivationBytes(kind, k) bytes (a multiple of 64);
// rows of a batch lie that far apart, from a 64-byte aligned start. Depends on the kind only as float or int8 (with the
// sums that minima need).
std::size_t ActivationBytes(PackedKind kind, std::int32_t k);
// Kinds with the same activation form can share prepared rows.
bool SameActivations(PackedKind a, PackedKind b);

struct MatMulKernels {
  void (*prepare_row)(PackedKind kind, const float* x, std::int32_t k, std::byte* dst);
  // y[m][n] for all m < rows and the columns of panels [panel_begin, panel_end); ldy = floats between rows of y, ≥ n.
  // Only columns < w.n are written.
  void (*matmul)(const PackedMatrix& w, const std::byte* activations, std::int32_t rows, float* y, std::int64_t ldy,
                 int panel_begin, int panel_end);
};

// REQUIRES: level ≤ DetectCpuLevel().
const MatMulKernels& GetMatMulKernels(CpuLevel level);

}  // namespace berth::cpu
