// What a good file says, read back.
#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "allocation_probe.h"
#include "fakes/gguf_builder.h"

namespace berth {
namespace {

using test::BytesOf;
using test::GgufBuilder;
using test::GgufString;
using test::ScratchFile;
using testing::HasSubstr;

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::unique_ptr<GgufFile> Open(const GgufBuilder& builder) {
  const ScratchFile scratch(builder.Bytes());  // the mapping outlives the name
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(scratch.path());
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

TEST(GgufFile, ReadsEveryValueType) {
  const auto file = Open(GgufBuilder()
                             .AddU8("u8", 255)
                             .AddI8("i8", -128)
                             .AddU16("u16", 65535)
                             .AddI16("i16", -32768)
                             .AddU32("u32", 4294967295)
                             .AddI32("i32", -2147483647 - 1)
                             .AddU64("u64", 1ULL << 62U)
                             .AddI64("i64", kMin)
                             .AddF32("f32", 0.5F)
                             .AddF64("f64", 1e300)
                             .AddBool("yes", true)
                             .AddBool("no", false)
                             .AddString("text", std::string_view("a\0b", 3))
                             .AddString("empty", ""));
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->GetInt("u8", kMin, kMax), 255);
  EXPECT_EQ(*file->GetInt("i8", kMin, kMax), -128);
  EXPECT_EQ(*file->GetInt("u16", kMin, kMax), 65535);
  EXPECT_EQ(*file->GetInt("i16", kMin, kMax), -32768);
  EXPECT_EQ(*file->GetInt("u32", kMin, kMax), 4294967295);
  EXPECT_EQ(*file->GetInt("i32", kMin, kMax), -2147483648LL);
  EXPECT_EQ(*file->GetInt("u64", kMin, kMax), std::int64_t{1} << 62);
  EXPECT_EQ(*file->GetInt("i64", kMin, kMax), kMin);
  EXPECT_EQ(*file->GetFloat("f32"), 0.5);
  EXPECT_EQ(*file->GetFloat("f64"), 1e300);
  EXPECT_TRUE(*file->GetBool("yes"));
  EXPECT_FALSE(*file->GetBool("no"));
  EXPECT_EQ(*file->GetString("text"), std::string_view("a\0b", 3));
  EXPECT_EQ(*file->GetString("empty"), "");
  EXPECT_TRUE(file->Has("u8"));
  EXPECT_FALSE(file->Has("u9"));
}

TEST(GgufFile, ReadsArraysInPlace) {
  const auto file = Open(GgufBuilder()
                             .AddStringArray("strings", {"", "one", std::string(300, 'x'), "Ġthe"})
                             .AddI32Array("i32", {-1, 0, 7})
                             .AddU32Array("u32", {4294967295})
                             .AddI8Array("i8", {-128, 127})
                             .AddF32Array("f32", {-0.5F, 2.0F})
                             .AddRaw("u64", 9, BytesOf(10U) + BytesOf(std::uint64_t{1}) + BytesOf(~std::uint64_t{0}))
                             .AddRaw("f64", 9, BytesOf(12U) + BytesOf(std::uint64_t{1}) + BytesOf(0.1))
                             .AddStringArray("none", {}));
  ASSERT_NE(file, nullptr);
  const GgufArray* strings = *file->GetArray("strings", GgufValueType::kString);
  ASSERT_EQ(strings->size(), 4);
  EXPECT_EQ(strings->StringAt(0), "");
  EXPECT_EQ(strings->StringAt(1), "one");
  EXPECT_EQ(strings->StringAt(2), std::string(300, 'x'));
  EXPECT_EQ(strings->StringAt(3), "Ġthe");
  const GgufArray* i32 = *file->GetArray("i32", GgufValueType::kI32);
  ASSERT_EQ(i32->size(), 3);
  EXPECT_EQ(i32->IntAt(0), -1);
  EXPECT_EQ(i32->IntAt(2), 7);
  EXPECT_EQ((*file->GetArray("u32", GgufValueType::kU32))->IntAt(0), 4294967295);
  EXPECT_EQ((*file->GetArray("i8", GgufValueType::kI8))->IntAt(0), -128);
  EXPECT_EQ((*file->GetArray("f32", GgufValueType::kF32))->FloatAt(1), 2.0);
  EXPECT_EQ((*file->GetArray("u64", GgufValueType::kU64))->IntAt(0), kMax);
  EXPECT_EQ((*file->GetArray("f64", GgufValueType::kF64))->FloatAt(0), 0.1);
  EXPECT_EQ((*file->GetArray("none", GgufValueType::kString))->size(), 0);
}

TEST(GgufFile, SkipsNestedArraysToTheNextKey) {
  const std::string inner = BytesOf(8U) + BytesOf(std::uint64_t{2}) + GgufString("a") + GgufString("bc");
  const std::string numbers = BytesOf(1U) + BytesOf(std::uint64_t{3}) + "xyz";
  const auto file = Open(
      GgufBuilder().AddRaw("nested", 9, BytesOf(9U) + BytesOf(std::uint64_t{2}) + inner + numbers).AddU32("after", 5));
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->GetInt("after", 0, 10), 5);
  EXPECT_EQ((*file->GetArray("nested", GgufValueType::kArray))->size(), 2);
}

TEST(GgufFile, SaysWhichKeyIsMissingOrWrong) {
  const auto file = Open(GgufBuilder()
                             .AddU32("n", 7)
                             .AddU64("huge", ~std::uint64_t{0})
                             .AddF32("nan", std::numeric_limits<float>::quiet_NaN())
                             .AddF64("inf", std::numeric_limits<double>::infinity())
                             .AddI8Array("scores", {1, 2, 3}));
  ASSERT_NE(file, nullptr);
  const auto expect = [&](const absl::Status& status, absl::StatusCode code, const std::string& what) {
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(std::string(status.message()), file->path() + ": metadata key " + what);
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  expect(file->GetInt("m", 0, 9).status(), absl::StatusCode::kNotFound, "'m' is missing");
  expect(file->GetArray("m", GgufValueType::kF32).status(), absl::StatusCode::kNotFound, "'m' is missing");
  expect(file->GetInt("n", 0, 6).status(), kInvalid, "'n' is 7, outside 0 to 6");
  expect(file->GetInt("n", 8, 9).status(), kInvalid, "'n' is 7, outside 8 to 9");
  expect(file->GetInt("huge", 0, kMax).status(), kInvalid,
         "'huge' is 18446744073709551615, outside 0 to 9223372036854775807");
  expect(file->GetInt("nan", 0, 1).status(), kInvalid, "'nan' is a float32, not an integer");
  expect(file->GetFloat("n").status(), kInvalid, "'n' is a uint32, not a float");
  expect(file->GetFloat("nan").status(), kInvalid, "'nan' is nan, not a finite number");
  expect(file->GetFloat("inf").status(), kInvalid, "'inf' is inf, not a finite number");
  expect(file->GetBool("n").status(), kInvalid, "'n' is a uint32, not a bool");
  expect(file->GetString("scores").status(), kInvalid, "'scores' is an array, not a string");
  expect(file->GetArray("n", GgufValueType::kF32).status(), kInvalid, "'n' is a uint32, not an array of float32");
  // What would be read four times past its end by a reader that trusts the key's name.
  expect(file->GetArray("scores", GgufValueType::kF32).status(), kInvalid,
         "'scores' is an array of int8, not an array of float32");
}

TEST(GgufFile, FindsTensorsWithTheirShapeAndBytes) {
  const auto file = Open(GgufBuilder()
                             .AddF32Tensor("z", {2, 3}, {1, 2, 3, 4, 5, 6})
                             .AddTensor("q", test::gguf_type::kQ4_0, {64, 2, 3}, std::string(12 * 18, 'q'))
                             .AddF32Tensor("a", {1}, {9}));
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->tensors()[0].name, "z");
  const GgufTensor* z = file->FindTensor("z");
  ASSERT_EQ(z, &file->tensors()[0]);
  EXPECT_EQ(z->cols(), 2);
  EXPECT_EQ(z->rows(), 3);
  EXPECT_EQ(z->elements(), 6);
  float last = 0.0F;
  std::memcpy(&last, z->data.data() + 20, sizeof(last));
  EXPECT_EQ(last, 6.0F);
  const GgufTensor* q = file->FindTensor("q");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->rows(), 6);
  EXPECT_EQ(q->data.size(), 12U * 18U);
  EXPECT_EQ(q->data[0], std::byte{'q'});
  EXPECT_EQ(file->FindTensor("a")->rows(), 1);
  EXPECT_EQ(file->FindTensor("b"), nullptr);
  EXPECT_EQ(file->FindTensor(""), nullptr);
}

TEST(GgufFile, PlacesDataByTheFilesOwnAlignment) {
  for (const std::uint32_t alignment : {1U, 8U, 64U, 4096U, 65536U}) {
    const auto file = Open(GgufBuilder()
                               .AddU32("general.alignment", alignment)
                               .LayOutWithAlignment(alignment)
                               .AddF32Tensor("first", {17}, std::vector<float>(17, 1.0F))
                               .AddF32Tensor("second", {16}, std::vector<float>(16, 2.0F)));
    ASSERT_NE(file, nullptr) << alignment;
    const GgufTensor* second = file->FindTensor("second");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second->data.data()) % std::min(alignment, 4096U), 0U);
    float value = 0.0F;
    std::memcpy(&value, second->data.data(), sizeof(value));
    EXPECT_EQ(value, 2.0F);
  }
}

TEST(GgufFile, LeavesWeightsAndTextsInTheMapping) {
  const std::string bytes = GgufBuilder()
                                .AddString("text", std::string(1 << 20, 't'))
                                .AddF32Tensor("w", {1024, 256}, std::vector<float>(1024 * 256))
                                .Bytes();
  const ScratchFile scratch(bytes);
  const test::AllocationProbe probe;
  const auto file = GgufFile::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->GetString("text")->size(), std::size_t{1} << 20);
  EXPECT_LT(probe.total_bytes(), 8192U);
}

TEST(GgufFile, TakesNoMoreMemoryThanTheFileForAnyNumberOfStrings) {
  const std::string bytes = GgufBuilder().AddStringArray("tokens", std::vector<std::string>(100000)).Bytes();
  const ScratchFile scratch(bytes);
  const test::AllocationProbe probe;
  const auto file = GgufFile::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  EXPECT_LE(probe.largest_bytes(), bytes.size());
  EXPECT_LE(probe.total_bytes(), bytes.size() + 8192);
}

TEST(GgufFile, IsTheSameWhateverFollowsTheTensors) {
  const ScratchFile scratch(GgufBuilder().AddF32Tensor("w", {16}, std::vector<float>(16)).Bytes() + "trailing");
  EXPECT_TRUE(GgufFile::Open(scratch.path()).ok());
}

TEST(GgufTypes, KnowTheirBlocks) {
  struct Case {
    GgufTensorType type;
    const char* name;
    std::int64_t elements, bytes;
  };
  for (const Case& c : {Case{GgufTensorType::kF32, "F32", 1, 4}, Case{GgufTensorType::kF16, "F16", 1, 2},
                        Case{GgufTensorType::kBF16, "BF16", 1, 2}, Case{GgufTensorType::kQ4_0, "Q4_0", 32, 18},
                        Case{GgufTensorType::kQ4_1, "Q4_1", 32, 20}, Case{GgufTensorType::kQ5_0, "Q5_0", 32, 22},
                        Case{GgufTensorType::kQ8_0, "Q8_0", 32, 34}, Case{GgufTensorType::kQ6_K, "Q6_K", 256, 210}}) {
    EXPECT_STREQ(GgufTensorTypeName(c.type), c.name);
    EXPECT_EQ(GgufBlockElements(c.type), c.elements) << c.name;
    EXPECT_EQ(GgufBlockBytes(c.type), c.bytes) << c.name;
  }
}

TEST(GgufArrayDeathTest, CallersMustStayInside) {
  const auto file = Open(GgufBuilder().AddI32Array("i", {1}).AddStringArray("s", {"x"}));
  ASSERT_NE(file, nullptr);
  const GgufArray* i = *file->GetArray("i", GgufValueType::kI32);
  const GgufArray* s = *file->GetArray("s", GgufValueType::kString);
  EXPECT_DEATH(i->IntAt(1), "check failed");
  EXPECT_DEATH(i->IntAt(-1), "check failed");
  EXPECT_DEATH(i->StringAt(0), "check failed");
  EXPECT_DEATH(i->FloatAt(0), "check failed");
  EXPECT_DEATH(s->StringAt(1), "check failed");
  EXPECT_DEATH(s->IntAt(0), "check failed");
}

}  // namespace
}  // namespace berth
