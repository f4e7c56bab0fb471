// From the bytes of a GGUF file to its parts. Private to this module; knows nothing of files, so any bytes can be
// tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/gguf.h"

namespace berth {

// Signed integers are kept as int64, unsigned ones as uint64, both float types as double.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
};

// Views into the bytes that were parsed.
struct GgufParts {
  std::map<std::string_view, GgufValue> metadata;
  std::vector<GgufTensor> tensors;             // in the file's order
  std::vector<std::uint32_t> tensors_by_name;  // indices into tensors, sorted by name
};

// Limits of what is believed. Real files have some dozens of keys and at most a few thousand tensors.
inline constexpr std::uint64_t kMaxGgufKeys = 65536;
inline constexpr std::uint64_t kMaxGgufKeyBytes = 65535;
inline constexpr std::uint64_t kMaxGgufTensors = 65536;
inline constexpr std::uint64_t kMaxGgufTensorNameBytes = 64;
inline constexpr std::uint64_t kMaxGgufAlignment = 65536;
inline constexpr int kMaxGgufArrayDepth = 4;

// Whether and how the type id is served. Ids that are not are named as ggml names them ("Q4_K", "type 77").
bool IsServedGgufTensorType(std::uint32_t id);
std::string GgmlTypeName(std::uint32_t id);
// "F32, F16, ..."
std::string ServedGgufTensorTypes();
// "a string", "an array" and so on, for messages.
const char* DescribeGgufValueType(GgufValueType type);
// Bytes of one value; 0 for strings and arrays, whose size is in the file.
std::uint64_t GgufScalarBytes(GgufValueType type);
// A name from a file as it may stand in a one-line message: quoted, escaped, cut when long.
std::string QuoteForMessage(std::string_view name);

// `path` is for messages alone. No single allocation is larger than `file`, messages aside, and all together are
// proportional to it. InvalidArgument where the bytes are no GGUF v3 file that is served.
absl::StatusOr<GgufParts> ParseGguf(std::span<const std::byte> file, const std::string& path);

}  // namespace berth
