#include "runner/cpu/kv_store.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace berth {
namespace {

constexpr KvShape kShape = {.layers = 3, .kv_heads = 2, .head_dim = 24};
constexpr KvPoolShape kPool = {.num_blocks = 7, .block_tokens = 4, .host_blocks = 5};

using Bytes = std::vector<std::byte>;

// Everything a block holds of every layer, as the attention kernels find it.
Bytes Contents(const KvStore& store, BlockId block) {
  Bytes bytes;
  for (std::int32_t layer = 0; layer < kShape.layers; ++layer) {
    for (std::int32_t head = 0; head < kShape.kv_heads; ++head) {
      cpu::AttentionTile tile;
      store.Describe(layer, head, &tile);
      const std::int64_t element_bytes = tile.element == cpu::KvElement::kF32    ? 4
                                         : tile.element == cpu::KvElement::kBF16 ? 2
                                                                                 : 1;
      for (const std::byte* part : {tile.k, tile.v}) {
        const std::byte* from = part + block * tile.block_bytes;
        bytes.insert(bytes.end(), from, from + kPool.block_tokens * kShape.head_dim * element_bytes);
      }
      if (tile.element != cpu::KvElement::kInt8) continue;
      for (const std::uint16_t* scales : {tile.k_scales, tile.v_scales}) {
        const auto* from = reinterpret_cast<const std::byte*>(scales) + block * tile.block_bytes;
        bytes.insert(bytes.end(), from, from + kPool.block_tokens * 2);
      }
    }
  }
  return bytes;
}

class KvStoreCopies : public testing::TestWithParam<KvDtype> {
 protected:
  void SetUp() override {
    absl::StatusOr<KvStore> store = KvStore::Create(kShape, GetParam(), kPool);
    ASSERT_TRUE(store.ok()) << store.status();
    store_.emplace(*std::move(store));
    blocks_.resize(kPool.num_blocks, Contents(*store_, 0));
    host_.resize(kPool.host_blocks, blocks_[0]);
  }

  void WriteRandomTokens(BlockId block) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(2UL * kShape.kv_heads * kShape.head_dim);
    for (std::int32_t layer = 0; layer < kShape.layers; ++layer) {
      for (std::int32_t token = 0; token < kPool.block_tokens; ++token) {
        for (float& x : rows) x = normal(random_);
        store_->Write(cpu::GetOpsKernels(cpu::CpuLevel::kScalar), layer, block * kPool.block_tokens + token,
                      rows.data(), rows.data() + rows.size() / 2);
      }
    }
    const Bytes before = blocks_[static_cast<std::size_t>(block)];
    blocks_[static_cast<std::size_t>(block)] = Contents(*store_, block);
    EXPECT_NE(blocks_[static_cast<std::size_t>(block)], before);
  }

  // In two shares, as two threads would copy.
  template <typename Copy>
  void InAllLayers(const Copy& copy) {
    copy(KvStore::Layers{0, 1});
    copy(KvStore::Layers{1, kShape.layers});
  }

  void Check(int step) const {
    for (BlockId block = 0; block < kPool.num_blocks; ++block) {
      ASSERT_EQ(Contents(*store_, block), blocks_[static_cast<std::size_t>(block)])
          << "step " << step << " block " << block;
    }
  }

  std::mt19937 random_{3};
  std::optional<KvStore> store_;
  std::vector<Bytes> blocks_;  // what each should hold
  std::vector<Bytes> host_;
};

TEST_P(KvStoreCopies, RandomWritesSwapsAndCopiesLeaveWhatAPlainModelHolds) {
  for (int step = 0; step < 300; ++step) {
    const auto block = static_cast<BlockId>(random_() % kPool.num_blocks);
    const auto other = static_cast<BlockId>((block + 1 + random_() % (kPool.num_blocks - 1)) % kPool.num_blocks);
    const auto host_block = static_cast<BlockId>(random_() % kPool.host_blocks);
    Bytes& held = blocks_[static_cast<std::size_t>(block)];
    Bytes& swapped = host_[static_cast<std::size_t>(host_block)];
    switch (random_() % 4) {
      case 0:
        WriteRandomTokens(block);
        break;
      case 1:
        InAllLayers([&](const KvStore::Layers& layers) { store_->SwapOut(layers, {block, host_block}); });
        swapped = held;
        break;
      case 2:
        InAllLayers([&](const KvStore::Layers& layers) { store_->SwapIn(layers, {block, host_block}); });
        held = swapped;
        break;
      default:
        InAllLayers([&](const KvStore::Layers& layers) { store_->CopyBlock(layers, block, other); });
        blocks_[static_cast<std::size_t>(other)] = held;
    }
    Check(step);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvStoreCopies, testing::Values(KvDtype::kFloat32, KvDtype::kBf16, KvDtype::kInt8),
                         [](const auto& test) { return std::string(KvDtypeName(test.param)); });

TEST(KvStore, TooLargeAHostPoolIsRefusedWithItsBytes) {
  KvPoolShape pool = kPool;
  pool.host_blocks = std::numeric_limits<std::int32_t>::max();
  pool.block_tokens = 256;
  const KvShape large = {.layers = 200, .kv_heads = 128, .head_dim = 128};
  const absl::StatusOr<KvStore> store = KvStore::Create(large, KvDtype::kFloat32, pool);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.status().message().find("the host's KV pool of 2147483647 blocks of 256 tokens in float32"),
            std::string::npos)
      << store.status();
}

}  // namespace
}  // namespace berth
