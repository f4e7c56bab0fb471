#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/half.h"
#include "kernels/cpu/ops.h"
#include "level_cases.h"

namespace berth::cpu {
namespace {

struct Case {
  CpuLevel level = CpuLevel::kScalar;
  KvElement element = KvElement::kF32;
  int head_dim = 64;
  int group = 3;
  int block_tokens = 16;
  int kv_tokens = 1;     // stored in all, the tile's included
  int query_tokens = 1;  // the last ones
};

std::string Name(const Case& c) {
  const char* const elements[] = {" f32", " bf16", " int8"};
  return std::string(CpuLevelName(c.level)) + elements[static_cast<int>(c.element)] + " head_dim " +
         std::to_string(c.head_dim) + " group " + std::to_string(c.group) + " block " + std::to_string(c.block_tokens) +
         " kv " + std::to_string(c.kv_tokens) + " queries " + std::to_string(c.query_tokens);
}

constexpr int kKvHeads = 2;  // the tile uses head 1: strides matter
constexpr int kKvHead = 1;

// One sequence's keys and values in a pool whose other places hold NaN.
class Pool {
 public:
  Pool(const Case& c, unsigned block_seed) : c_(c) {
    const int blocks = (c.kv_tokens + c.block_tokens - 1) / c.block_tokens;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks) + 3);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(block_seed));
    table_.assign(ids.begin(), ids.begin() + blocks);
    const std::size_t elements = ids.size() * static_cast<std::size_t>(BlockStride());
    for (int part = 0; part < 2; ++part) {
      floats_[part].assign(elements, std::numeric_limits<float>::quiet_NaN());
      halves_[part].assign(elements, 0x7FC0);
      codes_[part].assign(elements, 77);
      scales_[part].assign(ids.size() * static_cast<std::size_t>(BlockBytes()) / 2, 0x7E00);
    }
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    for (int t = 0; t < c.kv_tokens; ++t) {
      for (int part = 0; part < 2; ++part) {
        std::vector<float> row(static_cast<std::size_t>(c.head_dim));
        for (float& x : row) x = normal(random);
        std::vector<std::uint16_t> bits(row.size());
        const OpsKernels& ops = GetOpsKernels(CpuLevel::kScalar);
        ops.to_bf16(row.data(), c.head_dim, bits.data());
        ops.to_int8(row.data(), c.head_dim, &codes_[part][static_cast<std::size_t>(Offset(t))],
                    &scales_[part][ScaleAt(t)]);
        std::copy(row.begin(), row.end(), floats_[part].begin() + Offset(t));
        std::copy(bits.begin(), bits.end(), halves_[part].begin() + Offset(t));
      }
    }
  }

  std::int64_t BlockBytes() const {
    const std::int64_t element_bytes[] = {4, 2, 1};
    return BlockStride() * element_bytes[static_cast<int>(c_.element)];
  }

  std::int64_t BlockStride() const { return std::int64_t{kKvHeads} * c_.block_tokens * c_.head_dim; }

  double At(int part, int token, int d) const {
    const std::int64_t i = Offset(token) + d;
    const auto at = static_cast<std::size_t>(i);
    switch (c_.element) {
      case KvElement::kF32:
        return floats_[part][at];
      case KvElement::kBF16:
        return BFloat16ToFloat(halves_[part][at]);
      case KvElement::kInt8:
        return HalfToFloat(scales_[part][ScaleAt(token)]) * static_cast<double>(codes_[part][at]);
    }
    return 0;
  }

  const std::byte* Base(int part) const {
    const std::int64_t head = std::int64_t{kKvHead} * c_.block_tokens * c_.head_dim;
    switch (c_.element) {
      case KvElement::kF32:
        return reinterpret_cast<const std::byte*>(floats_[part].data() + head);
      case KvElement::kBF16:
        return reinterpret_cast<const std::byte*>(halves_[part].data() + head);
      case KvElement::kInt8:
        return reinterpret_cast<const std::byte*>(codes_[part].data() + head);
    }
    return nullptr;
  }

  const std::uint16_t* Scales(int part) const { return scales_[part].data() + kKvHead * c_.block_tokens; }

  const std::int32_t* table() const { return table_.data(); }

 private:
  std::int64_t Offset(int token) const {
    return table_[static_cast<std::size_t>(token / c_.block_tokens)] * BlockStride() +
           (std::int64_t{kKvHead} * c_.block_tokens + token % c_.block_tokens) * c_.head_dim;
  }

  // Blocks of scales lie as far apart as blocks of codes.
  std::size_t ScaleAt(int token) const {
    const std::int64_t block = table_[static_cast<std::size_t>(token / c_.block_tokens)];
    return static_cast<std::size_t>(block * BlockBytes() / 2 + kKvHead * c_.block_tokens + token % c_.block_tokens);
  }

  Case c_;
  std::vector<std::int32_t> table_;
  std::vector<float> floats_[2];
  std::vector<std::uint16_t> halves_[2];
  std::vector<std::int8_t> codes_[2];
  std::vector<std::uint16_t> scales_[2];  // of the codes
};

std::vector<float> Queries(const Case& c) {
  std::vector<float> q(static_cast<std::size_t>(c.kv_tokens) * static_cast<std::size_t>(c.group * c.head_dim));
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0F, 1.5F);
  for (float& x : q) x = normal(random);
  return q;
}

// Attends tokens [begin, begin + count) of the sequence in one tile; rows of group · head_dim floats.
std::vector<float> Attend(const Case& c, const Pool& pool, const std::vector<float>& q, int begin, int count) {
  const AttentionKernels& kernels = GetAttentionKernels(c.level);
  const std::int64_t row = std::int64_t{c.group} * c.head_dim;
  AttentionTile tile;
  tile.q = q.data() + begin * row;
  tile.q_token_stride = row;
  tile.num_tokens = count;
  tile.group = c.group;
  tile.head_dim = c.head_dim;
  tile.first_position = begin;
  tile.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  tile.element = c.element;
  tile.k = pool.Base(0);
  tile.v = pool.Base(1);
  tile.k_scales = pool.Scales(0);
  tile.v_scales = pool.Scales(1);
  tile.block_bytes = pool.BlockBytes();
  tile.block_ids = pool.table();
  tile.block_tokens = c.block_tokens;

  const int rows = count * c.group;
  const int stride = AttentionStride(c.head_dim);
  constexpr float kGuard = 12345.0F;
  std::vector<float> scratch(AttentionScratchFloats(c.head_dim) + 1, std::numeric_limits<float>::quiet_NaN());
  scratch.back() = kGuard;
  std::vector<float> numbers[2];
  AttentionPartial partial[2];
  for (int i = 0; i < 2; ++i) {
    numbers[i].assign(static_cast<std::size_t>(rows * (stride + 2)), std::numeric_limits<float>::quiet_NaN());
    partial[i] = {numbers[i].data(), numbers[i].data() + rows, numbers[i].data() + 2 * rows, stride};
  }
  for (int chunk = 0; chunk * kAttentionChunkTokens < begin + count; ++chunk) {
    kernels.attend_chunk(tile, chunk, scratch.data(), partial[chunk == 0 ? 0 : 1]);
    if (chunk > 0) kernels.merge(rows, partial[1], partial[0]);
  }
  std::vector<float> out(static_cast<std::size_t>(count * row) + 1, kGuard);
  kernels.finish(tile, partial[0], out.data(), row);
  EXPECT_EQ(scratch.back(), kGuard);
  EXPECT_EQ(out.back(), kGuard);
  out.pop_back();
  return out;
}

std::vector<double> Reference(const Case& c, const Pool& pool, const std::vector<float>& q, int token, int head) {
  std::vector<double> score(static_cast<std::size_t>(token) + 1);
  const std::size_t row = static_cast<std::size_t>((token * c.group + head) * c.head_dim);
  for (int t = 0; t <= token; ++t) {
    double s = 0;
    for (int d = 0; d < c.head_dim; ++d)
      s += static_cast<double>(q[row + static_cast<std::size_t>(d)]) * pool.At(0, t, d);
    score[static_cast<std::size_t>(t)] = s / std::sqrt(static_cast<double>(c.head_dim));
  }
  const double max = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double& s : score) sum += s = std::exp(s - max);
  std::vector<double> out(static_cast<std::size_t>(c.head_dim), 0.0);
  for (int t = 0; t <= token; ++t) {
    for (int d = 0; d < c.head_dim; ++d) {
      out[static_cast<std::size_t>(d)] += score[static_cast<std::size_t>(t)] / sum * pool.At(1, t, d);
    }
  }
  return out;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const CpuLevel level : test::Levels()) {
    for (const KvElement element : {KvElement::kF32, KvElement::kBF16, KvElement::kInt8}) {
      for (const int kv : {1, 2, 255, 256, 257, 513, 1000}) {
        cases.push_back({level, element, 64, 3, 16, kv, std::min(kv, 16)});
      }
      for (const int head_dim : {1, 8, 16, 20, 48, 80, 128, 200}) {
        cases.push_back({level, element, head_dim, 4, 16, 300, 5});
      }
      for (const int group : {1, 2, 5, 9}) cases.push_back({level, element, 64, group, 1, 270, 5});
      for (const int block : {1, 2, 64, 256}) cases.push_back({level, element, 24, 2, block, 530, 24});
    }
  }
  return cases;
}

TEST(Attention, AgreesWithFloat64WhateverTheLengthShapeAndBlockSize) {
  for (const Case& c : Cases()) {
    const Pool pool(c, 1);
    const std::vector<float> q = Queries(c);
    const int begin = c.kv_tokens - c.query_tokens;
    const std::vector<float> out = Attend(c, pool, q, begin, c.query_tokens);
    double worst = 0;
    for (int i = 0; i < c.query_tokens; ++i) {
      for (int h = 0; h < c.group; ++h) {
        const std::vector<double> expected = Reference(c, pool, q, begin + i, h);
        for (int d = 0; d < c.head_dim; ++d) {
          const double got = out[static_cast<std::size_t>((i * c.group + h) * c.head_dim + d)];
          worst = std::max(worst, std::isnan(got) ? 1e9 : std::abs(got - expected[static_cast<std::size_t>(d)]));
        }
      }
    }
    EXPECT_LT(worst, 3e-6) << Name(c);
  }
}

TEST(Attention, AQueryTokensBitsDoNotDependOnItsTileNorOnBlockIds) {
  for (const Case& c : Cases()) {
    const Pool pool(c, 1);
    const Pool other_blocks(c, 2);
    const std::vector<float> q = Queries(c);
    const int begin = c.kv_tokens - c.query_tokens;
    const std::vector<float> together = Attend(c, pool, q, begin, c.query_tokens);
    EXPECT_EQ(together, Attend(c, other_blocks, q, begin, c.query_tokens)) << Name(c);
    std::vector<float> alone;
    for (int i = 0; i < c.query_tokens; ++i) {
      const std::vector<float> one = Attend(c, pool, q, begin + i, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    EXPECT_EQ(together, alone) << Name(c);
  }
}

TEST(Attention, ATileAcrossAChunkBorderGivesEachTokenItsOwnResult) {
  for (const CpuLevel level : test::Levels()) {
    const Case c{level, KvElement::kBF16, 64, 3, 16, 264, 16};  // positions 248 .. 263
    const Pool pool(c, 3);
    const std::vector<float> q = Queries(c);
    const std::vector<float> together = Attend(c, pool, q, 248, 16);
    std::vector<float> alone;
    for (int i = 248; i < 264; ++i) {
      const std::vector<float> one = Attend(c, pool, q, i, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    EXPECT_EQ(together, alone) << CpuLevelName(level);
  }
}

TEST(Attention, OverwhelmingScoresStayFinite) {
  for (const CpuLevel level : test::Levels()) {
    const Case c{level, KvElement::kF32, 64, 2, 16, 600, 4};
    const Pool pool(c, 1);
    std::vector<float> q = Queries(c);
    for (float& x : q) x *= 1e4F;
    for (const float y : Attend(c, pool, q, c.kv_tokens - 4, 4)) EXPECT_TRUE(std::isfinite(y)) << CpuLevelName(level);
  }
}

}  // namespace
}  // namespace berth::cpu
