// Files that lie: after the published failures of other GGUF readers, whose numbers stand beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "allocation_probe.h"
#include "fakes/gguf_builder.h"
#include "model/gguf.h"
#include "refusal.h"

namespace berth {
namespace {

using test::BytesOf;
using test::GgufBuilder;
using test::GgufString;
using test::ScratchFile;
using namespace test::gguf_type;
using testing::HasSubstr;

constexpr std::uint64_t kMaxU64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMaxI64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kStringType = 8;
constexpr std::uint32_t kArrayType = 9;

void ExpectRefused(const std::string& bytes, const std::vector<std::string>& names) {
  test::ExpectRefused(&GgufFile::Open, bytes, names);
}
void ExpectRefused(const GgufBuilder& builder, const std::vector<std::string>& names) {
  ExpectRefused(builder.Bytes(), names);
}

// Room enough that a refusal is about the claim, not about a short file.
GgufBuilder WithPadding() { return GgufBuilder().AddString("padding", std::string(4096, 'x')); }

GgufBuilder OneTensor(std::uint32_t type, const std::vector<std::uint64_t>& dims, std::size_t bytes) {
  return GgufBuilder().AddTensor("blk.0.w", type, dims, std::string(bytes, '\0'));
}

TEST(AllocationProbe, SeesWhatIsAllocated) {
  const test::AllocationProbe probe;
  const std::vector<char> block(std::size_t{1} << 20);
  EXPECT_EQ(block.back(), '\0');
  EXPECT_GE(probe.largest_bytes(), std::size_t{1} << 20);
}

TEST(GgufOpen, NamesAMissingFile) {
  const absl::Status status = GgufFile::Open("/nonexistent/model.gguf").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/model.gguf"));
}

TEST(GgufOpen, RefusesADirectory) {
  const std::string path = std::filesystem::temp_directory_path();
  test::ExpectOneClearLine(GgufFile::Open(path).status(), path, {"is a directory"});
}

TEST(GgufOpen, RefusesAPipeWithoutWaitingForAWriter) {
  const ScratchFile name;
  ASSERT_EQ(::mkfifo(name.path().c_str(), 0600), 0);
  test::ExpectOneClearLine(GgufFile::Open(name.path()).status(), name.path(), {"not a regular file"});
}

// In a process of its own, which gives up root's right to read everything.
TEST(GgufOpenDeathTest, NamesAnUnreadableFile) {
  const ScratchFile file(GgufBuilder().Bytes());
  ASSERT_EQ(::chmod(file.path().c_str(), 0), 0);
  const auto open_as_nobody = [&] {
    constexpr ::uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::seteuid(kNobody) != 0) std::exit(1);
    const absl::Status status = GgufFile::Open(file.path()).status();
    std::cerr << status.message();
    std::_Exit(status.code() == absl::StatusCode::kPermissionDenied ? 0 : 2);
  };
  EXPECT_EXIT(open_as_nobody(), testing::ExitedWithCode(0), file.path());
}

TEST(GgufOpen, RefusesWhatIsNoGgufV3File) {
  ExpectRefused(std::string(), {"the file is empty"});
  ExpectRefused(std::string("GG"), {"does not start with 'GGUF'"});
  ExpectRefused(std::string(4096, '\0'), {"does not start with 'GGUF'"});
  ExpectRefused(std::string("GGUF"), {"header", "byte 4"});
  ExpectRefused(GgufBuilder().Bytes().substr(0, 23), {"header", "byte 23"});
  ExpectRefused(GgufBuilder().ClaimVersion(1), {"version 1", "only version 3 is served"});
  ExpectRefused(GgufBuilder().ClaimVersion(2), {"version 2", "only version 3 is served"});
  ExpectRefused(GgufBuilder().ClaimVersion(4), {"version 4", "only version 3 is served"});
  ExpectRefused(GgufBuilder().ClaimVersion(0), {"version 0", "only version 3 is served"});
  ExpectRefused(GgufBuilder().ClaimVersion(0x03000000), {"big-endian"});
}

// CVE-2024-23605 (keys) and CVE-2024-21836 (tensors): counts whose product with an element's size wraps.
TEST(GgufOpen, BelievesNoCountThatTheFileCannotHold) {
  for (const std::uint64_t count : {kMaxU64, kMaxI64, std::uint64_t{0x1000000000000001}, std::uint64_t{1000000}}) {
    ExpectRefused(WithPadding().ClaimKeyCount(count), {"header", std::to_string(count) + " metadata keys", "at most"});
    ExpectRefused(WithPadding().ClaimTensorCount(count), {"header", std::to_string(count) + " tensors", "at most"});
  }
  ExpectRefused(WithPadding().ClaimKeyCount(295), {"295 metadata keys", "4147 bytes may hold at most 294"});
  ExpectRefused(WithPadding().ClaimTensorCount(65), {"65 tensors", "4147 bytes may hold at most 64"});
  // Within what the size allows, but not there.
  ExpectRefused(WithPadding().ClaimKeyCount(290), {"metadata key 2 of 290", "is cut off"});
  ExpectRefused(WithPadding().ClaimTensorCount(64), {"tensor entry 1 of 64", "is cut off"});
}

TEST(GgufOpen, BoundsTheNumberOfKeysAndTensorsInAnyFile) {
  const std::string large(8U << 20U, 'x');
  ExpectRefused(GgufBuilder().AddString("padding", large).ClaimKeyCount(65537), {"65537 metadata keys", "65536"});
  ExpectRefused(GgufBuilder().AddString("padding", large).ClaimTensorCount(65537), {"65537 tensors", "65536"});
}

// CVE-2024-23496, CVE-2025-66960: a length that wraps the position, or is allocated before it is compared.
TEST(GgufOpen, BelievesNoStringLengthBeyondTheFile) {
  for (const std::uint64_t length : {kMaxU64, kMaxU64 - 7, kMaxI64, std::uint64_t{4097}}) {
    const std::string claim = BytesOf(length) + "abc";
    const std::string shown = std::to_string(length) + " bytes";
    const std::string header = GgufBuilder().ClaimKeyCount(1).Bytes();
    ExpectRefused(header + claim + std::string(64, 'x'), {"metadata key 1 of 1", shown});
    ExpectRefused(GgufBuilder().AddRaw("general.name", kStringType, claim), {"'general.name'", shown});
    ExpectRefused(GgufBuilder().ClaimTensorCount(1).Bytes() + claim + std::string(64, 'x'),
                  {"tensor entry 1 of 1", shown});
    // CVE-2025-49847: the text of one token among good ones.
    const std::string array = BytesOf(kStringType) + BytesOf(std::uint64_t{2}) + GgufString("good") + claim;
    ExpectRefused(GgufBuilder().AddRaw("tokenizer.ggml.tokens", kArrayType, array),
                  {"'tokenizer.ggml.tokens' element 1", shown});
  }
}

// CVE-2024-21825: counts whose product with the element's size wraps to something small.
TEST(GgufOpen, BelievesNoArrayCountBeyondTheFile) {
  for (std::uint32_t type = 0; type <= 12; ++type) {
    for (const std::uint64_t count :
         {kMaxU64, kMaxI64, std::uint64_t{1} << 61U, (std::uint64_t{1} << 62U) + 1, std::uint64_t{5000}}) {
      const std::string array = BytesOf(type) + BytesOf(count) + std::string(1024, '\0');
      ExpectRefused(GgufBuilder().AddRaw("scores", kArrayType, array),
                    {"'scores'", "an array of " + std::to_string(count), "left in the file"});
    }
  }
}

TEST(GgufOpen, BoundsTheDepthOfNestedArrays) {
  std::string nested = BytesOf(std::uint32_t{0}) + BytesOf(std::uint64_t{1}) + "x";
  for (int depth = 1; depth < 4; ++depth) nested = BytesOf(kArrayType) + BytesOf(std::uint64_t{1}) + nested;
  const ScratchFile four(GgufBuilder().AddRaw("deep", kArrayType, nested).Bytes());
  EXPECT_TRUE(GgufFile::Open(four.path()).ok());
  for (int depth = 4; depth < 20000; ++depth) nested.insert(0, BytesOf(kArrayType) + BytesOf(std::uint64_t{1}));
  ExpectRefused(GgufBuilder().AddRaw("deep", kArrayType, nested), {"'deep'", "deeper than the 4"});
}

// CVE-2024-12055: ids that index a table of types.
TEST(GgufOpen, RefusesUnknownTypes) {
  for (const std::uint32_t id : {13U, 255U, 0x80000000U, 0xFFFFFFFFU}) {
    const std::string shown = std::to_string(id);
    ExpectRefused(GgufBuilder().AddRaw("k", id, std::string(64, '\0')), {"'k'", "unknown value type " + shown});
    const std::string array = BytesOf(id) + BytesOf(std::uint64_t{1}) + std::string(64, '\0');
    ExpectRefused(GgufBuilder().AddRaw("k", kArrayType, array), {"'k'", "unknown value type " + shown});
  }
  for (const std::uint32_t id : {77U, 0x80000000U, 0xFFFFFFFFU}) {
    ExpectRefused(OneTensor(id, {32}, 128), {"'blk.0.w'", "type " + std::to_string(id)});
  }
}

TEST(GgufOpen, NamesTensorTypesThatAreNotServed) {
  const std::vector<std::string> served = {"served types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q6_K"};
  ExpectRefused(OneTensor(kQ4_K, {256}, 144), {"'blk.0.w'", "Q4_K", served[0]});
  ExpectRefused(OneTensor(kI32, {32}, 128), {"'blk.0.w'", "I32", served[0]});
  ExpectRefused(OneTensor(39, {32}, 128), {"'blk.0.w'", "MXFP4", served[0]});
}

TEST(GgufOpen, RefusesKeysThatAreEmptyDoubledOrTooLong) {
  ExpectRefused(WithPadding().AddU32("", 1), {"metadata key 2 of 2", "empty name"});
  ExpectRefused(WithPadding().AddU32("a", 1).AddU32("b", 1).AddU32("a", 1), {"'a'", "there twice"});
  ExpectRefused(WithPadding().AddU32(std::string(65536, 'k'), 1), {"65536 bytes", "at most 65535"});
}

TEST(GgufOpen, RefusesABoolThatIsNeither) { ExpectRefused(GgufBuilder().AddRaw("k", 7, "\x02"), {"'k'", "value 2"}); }

TEST(GgufOpen, KeepsMessagesOneLineWhateverTheNames) {
  ExpectRefused(GgufBuilder().AddRaw("evil\nkey\x1B[2J", 99, "x"), {"'evil\\nkey\\x1b[2J'"});
  ExpectRefused(GgufBuilder().AddRaw(std::string(60000, '\n'), 99, "x"), {"\\n\\n", "...'"});
  ExpectRefused(GgufBuilder().AddTensor("evil\nname", kQ4_K, {256}, std::string(144, 'x')), {"'evil\\nname'"});
}

// CVE-2024-21802: more dimensions than the array that holds them.
TEST(GgufOpen, BoundsTheNumberOfDimensions) {
  ExpectRefused(OneTensor(kF32, {1, 1, 1, 1, 1}, 64), {"'blk.0.w'", "5 dimensions", "1 to 4"});
  ExpectRefused(OneTensor(kF32, {}, 64), {"'blk.0.w'", "0 dimensions", "1 to 4"});
  const std::string entry = GgufString("w") + BytesOf(0xFFFFFFFFU) + std::string(256, '\1');
  ExpectRefused(GgufBuilder().ClaimTensorCount(1).Bytes() + entry, {"'w'", "4294967295 dimensions"});
}

TEST(GgufOpen, RefusesDimensionsOutOfRange) {
  ExpectRefused(OneTensor(kF32, {0}, 64), {"'blk.0.w'", "dimension 0 of 0"});
  ExpectRefused(OneTensor(kF32, {4, 0, 2}, 64), {"'blk.0.w'", "dimension 1 of 0"});
  ExpectRefused(OneTensor(kF32, {kMaxI64 + 1}, 64), {"'blk.0.w'", "dimension 0 of 9223372036854775808"});
  ExpectRefused(OneTensor(kF32, {2, kMaxU64}, 64), {"'blk.0.w'", "dimension 1 of 18446744073709551615"});
}

TEST(GgufOpen, RefusesTensorsWhoseSizeWraps) {
  const std::uint64_t two42 = std::uint64_t{1} << 42U;
  // llama.cpp#27203: two dimensions whose product wraps.
  ExpectRefused(OneTensor(kF32, {kMaxI64, 2}, 64), {"'blk.0.w'", "more than 2^63-1"});
  ExpectRefused(OneTensor(kQ8_0, {two42, two42, two42, two42}, 64), {"'blk.0.w'", "more than 2^63-1"});
  // CVE-2026-33298: 2^62 + 2^20 elements of 4 bytes are 4 MiB modulo 2^64.
  ExpectRefused(OneTensor(kF32, {two42 + 1, std::uint64_t{1} << 20U}, 64), {"'blk.0.w'", "more than 2^63-1 bytes"});
  ExpectRefused(OneTensor(kF32, {two42 + 1}, 64), {"'blk.0.w'", "past the end of the 64 bytes"});
  // Padding 2^64-4 bytes to the alignment gives 0.
  ExpectRefused(OneTensor(kF32, {(std::uint64_t{1} << 62U) - 1}, 64), {"'blk.0.w'", "more than 2^63-1 bytes"});
  ExpectRefused(OneTensor(kQ6_K, {kMaxI64 / 256 * 256}, 64), {"'blk.0.w'", "past the end of the 64 bytes"});
}

// CVE-2025-53630, CVE-2026-27940: each tensor fits 63 bits, the sum of their padded sizes wraps to little.
TEST(GgufOpen, RefusesTensorsWhoseSizesTogetherWrap) {
  const std::uint64_t half = std::uint64_t{1} << 61U;  // elements of 2 bytes: 2^62 bytes
  GgufBuilder builder;
  for (const char* name : {"a", "b", "c", "d", "e"}) builder.AddTensor(name, kF16, {half}, std::string(64, '\0'));
  ExpectRefused(builder, {"'a'", "4611686018427387904 bytes at data offset 0", "past the end"});
}

TEST(GgufOpen, RefusesRowsOfBrokenBlocks) {
  ExpectRefused(OneTensor(kQ4_0, {33, 32}, 1024), {"'blk.0.w'", "33 elements", "32", "Q4_0"});
  ExpectRefused(OneTensor(kQ6_K, {128, 2}, 1024), {"'blk.0.w'", "128 elements", "256", "Q6_K"});
}

// CVE-2026-7482 and others: data that is not in the file.
TEST(GgufOpen, RefusesDataOutsideTheFile) {
  const GgufBuilder good = OneTensor(kF32, {16}, 64);
  const auto claim = [&](std::uint64_t offset) { return GgufBuilder(good).ClaimTensorOffset("blk.0.w", offset); };
  ExpectRefused(claim(32), {"'blk.0.w'", "64 bytes at data offset 32", "64 bytes of tensor data"});
  ExpectRefused(claim(96), {"'blk.0.w'", "data offset 96"});
  ExpectRefused(claim(kMaxU64 - 31), {"'blk.0.w'", "at data offset 18446744073709551584"});
  ExpectRefused(claim(8), {"'blk.0.w'", "data at offset 8", "alignment 32"});
  ExpectRefused(claim(kMaxU64), {"'blk.0.w'", "alignment 32"});
  ExpectRefused(OneTensor(kF32, {17}, 64), {"'blk.0.w'", "68 bytes at data offset 0"});
  // The file ends before its data section would start.
  const std::string bytes = WithPadding().AddF32Tensor("w", {16}, std::vector<float>(16)).Bytes();
  ExpectRefused(bytes.substr(0, bytes.size() - 65), {"'w'", "0 bytes of tensor data"});
}

TEST(GgufOpen, RefusesTensorsThatOverlapOrShareAName) {
  const auto two = [](const char* first, const char* second) {
    return GgufBuilder()
        .AddF32Tensor(first, {16}, std::vector<float>(16))
        .AddF32Tensor(second, {16}, std::vector<float>(16));
  };
  ExpectRefused(two("a", "b").ClaimTensorOffset("b", 32), {"'b'", "overlaps", "'a'"});
  ExpectRefused(two("a", "b").ClaimTensorOffset("b", 0), {"overlaps"});
  ExpectRefused(two("a", "a"), {"'a'", "there twice"});
}

TEST(GgufOpen, RefusesTensorNamesThatAreEmptyOrTooLong) {
  ExpectRefused(GgufBuilder().AddF32Tensor("", {16}, std::vector<float>(16)), {"tensor entry 1 of 1", "empty name"});
  const std::string longest(64, 'n');
  ExpectRefused(GgufBuilder().AddF32Tensor(longest + "n", {16}, std::vector<float>(16)), {"65 bytes", "at most 64"});
  const ScratchFile file(GgufBuilder().AddF32Tensor(longest, {16}, std::vector<float>(16)).Bytes());
  EXPECT_TRUE(GgufFile::Open(file.path()).ok());
}

TEST(GgufOpen, RefusesAnAlignmentThatIsNone) {
  const std::string key = "general.alignment";
  for (const std::uint32_t alignment : {0U, 3U, 48U, 65537U, 131072U, 0x80000000U, 0xFFFFFFFFU}) {
    ExpectRefused(OneTensor(kF32, {16}, 64).AddU32(key, alignment),
                  {key, "is " + std::to_string(alignment), "power of two from 1 to 65536"});
  }
  ExpectRefused(OneTensor(kF32, {16}, 64).AddU64(key, 32), {key, "a uint64, not a uint32"});
  ExpectRefused(OneTensor(kF32, {16}, 64).AddString(key, "32"), {key, "a string, not a uint32"});
  ExpectRefused(OneTensor(kF32, {16}, 64).AddU32Array(key, {32}), {key, "an array, not a uint32"});
}

}  // namespace
}  // namespace berth
