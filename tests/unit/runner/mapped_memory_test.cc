#include "runner/cpu/mapped_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "runner/memory_layout.h"

namespace berth {
namespace {

TEST(MappedMemory, IsZeroedAndMoves) {
  absl::StatusOr<MappedMemory> mapped = MappedMemory::Map(10'000, "a test");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  MappedMemory memory = *std::move(mapped);
  EXPECT_EQ(memory.size(), 10'000U);
  EXPECT_EQ(memory.data()[9'999], std::byte{0});
  memory.data()[9'999] = std::byte{7};
  const MappedMemory moved = std::move(memory);
  EXPECT_EQ(moved.data()[9'999], std::byte{7});
}

TEST(MappedMemory, RefusesWhatTheSystemCannotGiveNamingItAndItsBytes) {
  const absl::StatusOr<MappedMemory> mapped = MappedMemory::Map(std::size_t{1} << 60, "a test");
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(mapped.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(mapped.status().message(), "no room for the 1152921504606846976 bytes of a test: Cannot allocate memory");
}

TEST(MemoryLayout, HandsOutAlignedPartsThatDoNotOverlap) {
  const auto lay_out = [](std::byte* base, std::byte** a, float** b, std::byte** c) {
    MemoryLayout layout(base);
    *a = layout.Take<std::byte>(1);
    *b = layout.Take<float>(3, 5);
    *c = layout.Take<std::byte>(64);
    return layout.bytes();
  };
  std::byte* a = nullptr;
  float* b = nullptr;
  std::byte* c = nullptr;
  const std::size_t bytes = lay_out(nullptr, &a, &b, &c);
  EXPECT_EQ(a, nullptr);
  EXPECT_EQ(bytes, 192U);
  absl::StatusOr<MappedMemory> memory = MappedMemory::Map(bytes, "a test");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(lay_out(memory->data(), &a, &b, &c), bytes);
  EXPECT_EQ(a, memory->data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(b), memory->data() + 64);
  EXPECT_EQ(c, memory->data() + 128);
}

TEST(MemoryLayout, ASizeThatOverflowsSticksAndIsRefused) {
  MemoryLayout layout;
  layout.Take<float>(std::numeric_limits<std::size_t>::max() / 2, 3);
  layout.Take<float>(1);
  const absl::StatusOr<MappedMemory> mapped = MappedMemory::Map(layout.bytes(), "a test");
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(mapped.status().message(), "a test would take more bytes than there are addresses");
}

}  // namespace
}  // namespace berth
