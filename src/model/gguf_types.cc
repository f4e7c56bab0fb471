#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "model/gguf.h"
#include "model/gguf_parser.h"

namespace berth {
namespace {

struct ServedType {
  GgufTensorType type;
  const char* name;
  std::int64_t block_elements;
  std::int64_t block_bytes;
};

// Sizes: the block structs of ggml-common.h.
constexpr ServedType kServedTypes[] = {
    {GgufTensorType::kF32, "F32", 1, 4},     {GgufTensorType::kF16, "F16", 1, 2},
    {GgufTensorType::kBF16, "BF16", 1, 2},   {GgufTensorType::kQ4_0, "Q4_0", 32, 18},
    {GgufTensorType::kQ4_1, "Q4_1", 32, 20}, {GgufTensorType::kQ5_0, "Q5_0", 32, 22},
    {GgufTensorType::kQ8_0, "Q8_0", 32, 34}, {GgufTensorType::kQ6_K, "Q6_K", 256, 210},
};

// The ids of ggml.h, in order.
constexpr const char* kGgmlTypeNames[] = {
    "F32",    "F16",      "Q4_0",     "Q4_1",     "Q4_2",  "Q4_3",  "Q5_0",       "Q5_1",       "Q8_0",       "Q8_1",
    "Q2_K",   "Q3_K",     "Q4_K",     "Q5_K",     "Q6_K",  "Q8_K",  "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",    "IQ1_S",
    "IQ4_NL", "IQ3_S",    "IQ2_S",    "IQ4_XS",   "I8",    "I16",   "I32",        "I64",        "F64",        "IQ1_M",
    "BF16",   "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0", "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};

const ServedType* FindServed(std::uint32_t id) {
  const auto* found = std::find_if(std::begin(kServedTypes), std::end(kServedTypes),
                                   [id](const ServedType& t) { return static_cast<std::uint32_t>(t.type) == id; });
  return found == std::end(kServedTypes) ? nullptr : found;
}

const ServedType& Served(GgufTensorType type) {
  const ServedType* found = FindServed(static_cast<std::uint32_t>(type));
  BERTH_CHECK(found != nullptr);
  return *found;
}

}  // namespace

const char* GgufTensorTypeName(GgufTensorType type) { return Served(type).name; }
std::int64_t GgufBlockElements(GgufTensorType type) { return Served(type).block_elements; }
std::int64_t GgufBlockBytes(GgufTensorType type) { return Served(type).block_bytes; }

bool IsServedGgufTensorType(std::uint32_t id) { return FindServed(id) != nullptr; }

std::string GgmlTypeName(std::uint32_t id) {
  return id < std::size(kGgmlTypeNames) ? kGgmlTypeNames[id] : absl::StrCat("type ", id);
}

std::string ServedGgufTensorTypes() {
  std::string list;
  for (const ServedType& served : kServedTypes) absl::StrAppend(&list, list.empty() ? "" : ", ", served.name);
  return list;
}

const char* DescribeGgufValueType(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
      return "a uint8";
    case GgufValueType::kI8:
      return "an int8";
    case GgufValueType::kU16:
      return "a uint16";
    case GgufValueType::kI16:
      return "an int16";
    case GgufValueType::kU32:
      return "a uint32";
    case GgufValueType::kI32:
      return "an int32";
    case GgufValueType::kF32:
      return "a float32";
    case GgufValueType::kBool:
      return "a bool";
    case GgufValueType::kString:
      return "a string";
    case GgufValueType::kArray:
      return "an array";
    case GgufValueType::kU64:
      return "a uint64";
    case GgufValueType::kI64:
      return "an int64";
    case GgufValueType::kF64:
      return "a float64";
  }
  return "of an unknown type";
}

std::uint64_t GgufScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

std::string QuoteForMessage(std::string_view name) {
  constexpr std::size_t kLongest = 96;
  const std::string_view shown = name.substr(0, kLongest);
  return absl::StrCat("'", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
                      name.size() > kLongest ? "...'" : "'");
}

}  // namespace berth
