// What products start from: packed weights and prepared activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/aligned_bytes.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/packed_layout.h"
#include "kernels/weight_data.h"
#include "level_cases.h"

namespace berth::cpu {
namespace {

using test::AlignedBytes;

constexpr PackedKind kAllKinds[] = {PackedKind::kPanelF32,  PackedKind::kPanelF16,         PackedKind::kPanelBF16,
                                    PackedKind::kPanelU4,   PackedKind::kPanelU4Symmetric, PackedKind::kPanelU8,
                                    PackedKind::kPanelU8x16};

std::vector<float> RandomRow(int k, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<std::size_t>(k));
  for (float& value : x) value = normal(rng);
  return x;
}

std::vector<ActivationBlock> PrepareInteger(CpuLevel level, const std::vector<float>& x) {
  const auto k = static_cast<std::int32_t>(x.size());
  AlignedBytes row(ActivationBytes(PackedKind::kPanelU8, k));
  GetMatMulKernels(level).prepare_row(PackedKind::kPanelU8, x.data(), k, row.data());
  const auto* blocks = reinterpret_cast<const ActivationBlock*>(row.data());
  return {blocks, blocks + k / kBlockInputs};
}

TEST(Operands, KindsFollowTheFormatAndTheComputeMode) {
  for (WeightFormat format : test::kAllFormats) EXPECT_EQ(ChoosePackedKind(format, true), PackedKind::kPanelF32);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kF32, false), PackedKind::kPanelF32);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kF16, false), PackedKind::kPanelF16);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kBF16, false), PackedKind::kPanelBF16);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kQ4_0, false), PackedKind::kPanelU4Symmetric);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kQ4_1, false), PackedKind::kPanelU4);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kQ5_0, false), PackedKind::kPanelU8);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kQ8_0, false), PackedKind::kPanelU8);
  EXPECT_EQ(ChoosePackedKind(WeightFormat::kQ6_K, false), PackedKind::kPanelU8x16);
}

TEST(Operands, PreparedRowsAreSharedByKindsOfOneForm) {
  EXPECT_TRUE(SameActivations(PackedKind::kPanelU4, PackedKind::kPanelU8x16));
  EXPECT_TRUE(SameActivations(PackedKind::kPanelF16, PackedKind::kPanelF32));
  EXPECT_FALSE(SameActivations(PackedKind::kPanelF16, PackedKind::kPanelU8));
  for (CpuLevel level : test::Levels()) {
    std::mt19937 rng(1);
    const std::vector<float> x = RandomRow(256, rng);
    for (PackedKind a : kAllKinds) {
      for (PackedKind b : kAllKinds) {
        if (!SameActivations(a, b)) continue;
        ASSERT_EQ(ActivationBytes(a, 256), ActivationBytes(b, 256));
        AlignedBytes row_a(ActivationBytes(a, 256)), row_b(ActivationBytes(b, 256));
        GetMatMulKernels(level).prepare_row(a, x.data(), 256, row_a.data());
        GetMatMulKernels(level).prepare_row(b, x.data(), 256, row_b.data());
        EXPECT_TRUE(std::ranges::equal(row_a.bytes(), row_b.bytes()));
      }
    }
  }
}

TEST(Operands, APackedRowReadsBackAsItWasStored) {
  std::mt19937 rng(11);
  for (const WeightFormat format : test::kAllFormats) {
    for (const bool float32 : {false, true}) {
      constexpr int kRows = 37;
      constexpr int kInputs = 512;
      const test::StoredWeights stored = test::RandomWeights(format, kRows, kInputs, test::Scales::kAnyFinite, rng);
      const PackedKind kind = ChoosePackedKind(format, float32);
      AlignedBytes packed(PackedBytes(kind, kRows, kInputs));
      PackPanels(format, stored.bytes.data(), kind, kRows, kInputs, 0, NumPanels(kRows), packed.data());
      for (int row = 0; row < kRows; ++row) {
        std::vector<float> expected(kInputs);
        Dequantize(format, stored.bytes.data() + static_cast<std::size_t>(row) * RowBytes(format, kInputs), kInputs,
                   expected.data());
        std::vector<float> got(kInputs);
        UnpackRow({kind, kRows, kInputs, packed.data()}, row, got.data());
        EXPECT_EQ(got, expected) << test::FormatName(format) << " float32 " << float32 << " row " << row;
      }
    }
  }
}

TEST(Operands, SizesAreWholeCacheLines) {
  for (PackedKind kind : kAllKinds) {
    for (std::int32_t k : {256, 512, 1536, 4096}) {
      EXPECT_EQ(ActivationBytes(kind, k) % 64, 0u);
      for (std::int32_t n : {1, 16, 17, 576}) {
        EXPECT_EQ(PackedBytes(kind, n, k) % 64, 0u);
        EXPECT_EQ(PackedBytes(kind, n, k), static_cast<std::size_t>(NumPanels(n)) * PackedBytes(kind, 1, k));
      }
    }
  }
  for (std::int32_t k : {1, 7, 172}) {
    EXPECT_EQ(ActivationBytes(PackedKind::kPanelF16, k) % 64, 0u);
    EXPECT_GE(ActivationBytes(PackedKind::kPanelF16, k), 4u * static_cast<unsigned>(k));
    EXPECT_EQ(PackedBytes(PackedKind::kPanelF16, 5, k) % 64, 0u);
  }
}

TEST(Operands, PackingWritesEveryByteOfItsPanelsAndNoOther) {
  std::mt19937 rng(2);
  for (WeightFormat format : test::kAllFormats) {
    for (bool float32 : {false, true}) {
      const PackedKind kind = ChoosePackedKind(format, float32);
      const int k = test::IsQuantised(format) ? 256 : 43;
      const test::StoredWeights weights = test::RandomWeights(format, 40, k, test::Scales::kTypical, rng);
      AlignedBytes whole(PackedBytes(kind, 40, k));
      PackPanels(format, weights.bytes.data(), kind, 40, k, 0, 3, whole.data());

      // The same bytes panel by panel, in any order, over other old contents.
      AlignedBytes parts(whole.size());
      std::fill_n(parts.data(), parts.size(), std::byte{0x3C});
      PackPanels(format, weights.bytes.data(), kind, 40, k, 2, 3, parts.data());
      const std::size_t panel_bytes = whole.size() / 3;
      EXPECT_TRUE(
          std::all_of(parts.data(), parts.data() + 2 * panel_bytes, [](std::byte b) { return b == std::byte{0x3C}; }));
      PackPanels(format, weights.bytes.data(), kind, 40, k, 0, 2, parts.data());
      EXPECT_TRUE(std::ranges::equal(whole.bytes(), parts.bytes())) << test::FormatName(format) << " " << float32;
    }
  }
}

TEST(Operands, CodesAreTheNearestMultiplesOfTheBlocksScale) {
  std::mt19937 rng(3);
  const std::vector<float> x = RandomRow(32 * 50, rng);
  for (CpuLevel level : test::Levels()) {
    const std::vector<ActivationBlock> blocks = PrepareInteger(level, x);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const float* values = x.data() + 32 * b;
      const float maximum = std::fabs(
          *std::max_element(values, values + 32, [](float p, float q) { return std::fabs(p) < std::fabs(q); }));
      EXPECT_EQ(blocks[b].scale, maximum / 127.0f);
      int sums[2] = {0, 0};
      for (int i = 0; i < 32; ++i) {
        // Half a code, and what the float32 multiplication may move a value at the edge.
        EXPECT_NEAR(static_cast<double>(values[i]) / (maximum / 127.0), blocks[b].codes[i], 0.5 + 127 * 0x1p-22);
        sums[i / 16] += blocks[b].codes[i];
      }
      EXPECT_EQ(blocks[b].scaled_sum, blocks[b].scale * static_cast<float>(sums[0] + sums[1]));
      EXPECT_EQ(blocks[b].minus_8_sum, -8 * (sums[0] + sums[1]));
      EXPECT_EQ(blocks[b].minus_128_sum, -128 * (sums[0] + sums[1]));
      EXPECT_EQ(blocks[b].minus_128_half_sum[0], -128 * sums[0]);
      EXPECT_EQ(blocks[b].minus_128_half_sum[1], -128 * sums[1]);
    }
  }
}

TEST(Operands, HalfCodesRoundToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // scale 1
  const float values[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  const int expected[] = {0, 2, 2, 0, -2, -2, 126};
  std::copy(std::begin(values), std::end(values), x.begin() + 1);
  for (CpuLevel level : test::Levels()) {
    const ActivationBlock block = PrepareInteger(level, x)[0];
    for (std::size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(block.codes[i + 1], expected[i]) << values[i];
  }
}

TEST(Operands, AnInfinityOrNaNPoisonsItsBlockAlone) {
  constexpr float kBad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 rng(4);
  for (CpuLevel level : test::Levels()) {
    for (float bad : kBad) {
      for (std::size_t at : {32, 47, 48, 63}) {
        std::vector<float> x = RandomRow(96, rng);
        x[at] = bad;
        const std::vector<ActivationBlock> blocks = PrepareInteger(level, x);
        EXPECT_FALSE(std::isnan(blocks[0].scale));
        EXPECT_TRUE(std::isnan(blocks[1].scale));
        EXPECT_FALSE(std::isnan(blocks[2].scale));
      }
    }
  }
}

TEST(Operands, TheWholeFiniteRangeIsQuantised) {
  for (CpuLevel level : test::Levels()) {
    std::vector<float> x(96, 0.0f);
    x[0] = std::numeric_limits<float>::max();
    x[1] = -std::numeric_limits<float>::max();
    x[32] = std::numeric_limits<float>::denorm_min();
    x[64] = 0x1p-120f;
    x[65] = -0x1p-121f;
    const std::vector<ActivationBlock> blocks = PrepareInteger(level, x);
    EXPECT_EQ(blocks[0].codes[0], 127);
    EXPECT_EQ(blocks[0].codes[1], -127);
    EXPECT_TRUE(std::isfinite(blocks[0].scale));
    EXPECT_EQ(blocks[1].codes[0], 0);
    EXPECT_EQ(blocks[1].scale, 0.0f);
    EXPECT_EQ(blocks[2].codes[0], 127);
    EXPECT_EQ(blocks[2].codes[1], -64);  // 63.5, to even
  }
}

TEST(Operands, LevelsPrepareTheSameBytes) {
  std::mt19937 rng(5);
  for (PackedKind kind : kAllKinds) {
    const int k = IsFloatKind(kind) ? 43 : 32 * 200;
    const std::vector<float> x = RandomRow(k, rng);
    AlignedBytes expected(ActivationBytes(kind, k));
    GetMatMulKernels(CpuLevel::kScalar).prepare_row(kind, x.data(), k, expected.data());
    for (CpuLevel level : test::Levels()) {
      AlignedBytes row(ActivationBytes(kind, k));
      GetMatMulKernels(level).prepare_row(kind, x.data(), k, row.data());
      EXPECT_TRUE(std::ranges::equal(row.bytes(), expected.bytes())) << CpuLevelName(level);
    }
  }
}

}  // namespace
}  // namespace berth::cpu
