// Files damaged at random. A run's seed is fixed, so what fails fails again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "allocation_probe.h"
#include "fakes/gguf_builder.h"
#include "model/gguf_parser.h"
#include "model/model.h"
#include "refusal.h"

namespace berth {
namespace {

using test::BytesOf;
using test::GgufBuilder;

// A file with every kind of value, small enough that most damage hits something that matters.
std::string SmallFile() {
  const std::string inner = BytesOf(8U) + BytesOf(std::uint64_t{1}) + test::GgufString("in");
  return GgufBuilder()
      .AddU32("general.alignment", 32)
      .AddString("general.name", "small")
      .AddU64("n", 7)
      .AddBool("flag", true)
      .AddF32("x", 0.5F)
      .AddStringArray("tokens", {"a", "", "bcd"})
      .AddI32Array("types", {1, 2, 3})
      .AddF32Array("scores", {1, 2, 3})
      .AddRaw("nested", 9, BytesOf(9U) + BytesOf(std::uint64_t{1}) + inner)
      .AddF32Tensor("a", {4, 4}, std::vector<float>(16, 1.0F))
      .AddTensor("q", test::gguf_type::kQ4_1, {32, 2}, std::string(40, 'q'))
      .AddF32Tensor("z", {4, 2, 2, 1}, std::vector<float>(16, 3.0F))
      .Bytes();
}

// The parser's input as a block of its own, so that the sanitizer sees one byte read too many.
absl::StatusOr<GgufParts> ParseCopy(std::string_view bytes, std::unique_ptr<std::byte[]>* copy) {
  *copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy->get(), bytes.data(), bytes.size());
  const test::AllocationProbe probe;
  absl::StatusOr<GgufParts> parts = ParseGguf(std::span<const std::byte>(copy->get(), bytes.size()), "mutant");
  EXPECT_LE(probe.largest_bytes(), std::max(bytes.size(), test::kMessageBytes));
  return parts;
}

std::uint64_t ReadAll(const GgufArray& array) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < array.size(); ++i) {
    switch (array.element_type()) {
      case GgufValueType::kString: {
        for (const char c : array.StringAt(i)) sum += static_cast<unsigned char>(c);
        break;
      }
      case GgufValueType::kF32:
      case GgufValueType::kF64:
        sum += array.FloatAt(i) > 0.0 ? 1 : 0;
        break;
      case GgufValueType::kBool:
      case GgufValueType::kArray:
        break;
      default:
        sum += static_cast<std::uint64_t>(array.IntAt(i));
    }
  }
  return sum;
}

// Touches every byte that the parts promise to hold.
std::uint64_t ReadAll(const GgufParts& parts) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : parts.metadata) {
    for (const char c : key) sum += static_cast<unsigned char>(c);
    if (const auto* array = std::get_if<GgufArray>(&value.value)) sum += ReadAll(*array);
    if (const auto* text = std::get_if<std::string_view>(&value.value)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
  }
  for (const GgufTensor& tensor : parts.tensors) {
    for (const std::byte byte : tensor.data) sum += static_cast<std::uint64_t>(byte);
  }
  return sum;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // One to four damages somewhere in the first `reach` bytes.
  std::string Damage(std::string bytes, std::size_t reach) {
    for (std::uint64_t count = 1 + Below(4); count > 0 && !bytes.empty(); --count) {
      const std::size_t at = Below(std::min(reach, bytes.size()));
      switch (Below(6)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
          break;
        case 1:
          bytes[at] = static_cast<char>(Below(256));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          Overwrite(&bytes, at, Interesting());
          break;
        case 4:
          bytes.erase(at, 1 + Below(16));
          break;
        case 5:
          bytes.insert(at, 1 + Below(16), static_cast<char>(Below(256)));
          break;
      }
    }
    return bytes;
  }

 private:
  std::uint64_t Below(std::uint64_t n) { return random_() % n; }

  // Numbers at which sums and products wrap.
  std::uint64_t Interesting() {
    const std::uint64_t power = std::uint64_t{1} << Below(64);
    switch (Below(4)) {
      case 0:
        return power;
      case 1:
        return power - 1;
      case 2:
        return ~power;
      default:
        return Below(64);
    }
  }

  static void Overwrite(std::string* bytes, std::size_t at, std::uint64_t value) {
    const std::string raw = BytesOf(value);
    for (std::size_t i = 0; i < raw.size() && at + i < bytes->size(); ++i) (*bytes)[at + i] = raw[i];
  }

  std::mt19937_64 random_;
};

TEST(GgufMutation, EveryTruncationIsRefused) {
  const std::string whole = SmallFile();
  std::unique_ptr<std::byte[]> copy;
  ASSERT_TRUE(ParseCopy(whole, &copy).ok()) << ParseCopy(whole, &copy).status();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const absl::Status status = ParseCopy(std::string_view(whole).substr(0, size), &copy).status();
    ASSERT_FALSE(status.ok()) << size;
    test::ExpectOneClearLine(status, "mutant", {});
  }
}

TEST(GgufMutation, DamagedBytesParseCleanlyOrAreRefusedInOneLine) {
  const std::string whole = SmallFile();
  Mutator mutator(20240229);
  std::unique_ptr<std::byte[]> copy;
  int accepted = 0;
  std::uint64_t sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const absl::StatusOr<GgufParts> parts = ParseCopy(mutator.Damage(whole, whole.size()), &copy);
    if (parts.ok()) {
      ++accepted;
      sum += ReadAll(*parts);
    } else {
      test::ExpectOneClearLine(parts.status(), "mutant", {});
    }
    if (HasFailure()) FAIL() << "variant " << i;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_NE(sum, 0U);
}

TEST(GgufMutation, DamagedModelsOpenOrAreRefusedInOneLine) {
  const std::string whole =
      test::MakeTinyLlama({.layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 32, .vocab_size = 260}).Bytes();
  const std::size_t header_bytes = whole.rfind("blk.0.ffn_down.weight") + 64;
  Mutator mutator(7);
  const test::ScratchFile file;
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    file.Write(mutator.Damage(whole, header_bytes));
    const absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(file.path());
    if (model.ok()) {
      EXPECT_EQ((*model)->weights.layers.size(), static_cast<std::size_t>((*model)->config.layers));
      EXPECT_GT((*model)->parameters(), 0);
      continue;
    }
    ++refused;
    EXPECT_EQ(std::string(model.status().message()).find('\n'), std::string::npos) << model.status();
    EXPECT_TRUE(std::string(model.status().message()).starts_with(file.path() + ": ")) << model.status();
    if (HasFailure()) FAIL() << "variant " << i;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace berth
