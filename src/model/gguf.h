// GGUF v3 model files, mapped and read in place (format: ggml docs/gguf.md). Everything is checked against the file's
// size before anything is allocated or dereferenced: a count, a length or an offset in the file is a claim, not a fact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace berth {

// Ids as in the file.
enum class GgufTensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ8_0 = 8,
  kQ6_K = 14,
  kBF16 = 30,
};

// "Q4_1" and so on.
const char* GgufTensorTypeName(GgufTensorType type);
// Elements in one block of the type (1 for the plain float types) and the bytes they take.
std::int64_t GgufBlockElements(GgufTensorType type);
std::int64_t GgufBlockBytes(GgufTensorType type);

// A tensor inside the mapped file. dims are fastest first, as in the file: a weight [cols, rows] has dims {cols, rows}.
struct GgufTensor {
  std::string_view name;
  GgufTensorType type = GgufTensorType::kF32;
  std::vector<std::int64_t> dims;   // 1 to 4, each ≥ 1
  std::span<const std::byte> data;  // exactly the tensor's bytes

  std::int64_t cols() const { return dims[0]; }
  std::int64_t rows() const;  // product of the other dims; a 1-D tensor is one row
  std::int64_t elements() const { return cols() * rows(); }
};

enum class GgufValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// An array value, still in the file: elements are read on demand and nothing is copied. Strings are indexed once, at
// Open.
class GgufArray {
 public:
  GgufValueType element_type() const;
  std::int64_t size() const;
  // REQUIRES: element_type() is kString / an integer type / kF32 or kF64; 0 ≤ i < size().
  std::string_view StringAt(std::int64_t i) const;
  std::int64_t IntAt(std::int64_t i) const;  // a uint64 beyond 2^63-1 reads as 2^63-1
  double FloatAt(std::int64_t i) const;

 private:
  friend class GgufParser;
  GgufArray() = default;
  const std::byte* At(std::int64_t i) const;

  GgufValueType element_type_ = GgufValueType::kU8;
  std::int64_t size_ = 0;
  const std::byte* data_ = nullptr;            // in the mapping
  std::vector<std::uint64_t> string_offsets_;  // strings only: where each starts, from data_
};

// Immutable after Open; thread-safe. Views stay valid as long as the file object. The file must not be cut short
// meanwhile.
class GgufFile {
 public:
  // Checked before it returns: every length and count against the file's size, names unique, tensor data inside the
  // file, aligned (general.alignment), not overlapping, rows of whole blocks, types served. Memory stays proportional
  // to the file's header and no allocation exceeds the file, whatever it claims. Errors are one line: path, the key or
  // tensor, the limit, what was found. NotFound and PermissionDenied as the system says, InvalidArgument for the
  // content.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  ~GgufFile();

  const std::string& path() const;
  std::int64_t file_bytes() const;
  std::span<const GgufTensor> tensors() const;
  const GgufTensor* FindTensor(std::string_view name) const;  // nullptr where absent

  bool Has(std::string_view key) const;
  // NotFound where the key is absent, InvalidArgument where the type or the range is wrong; the message names file and
  // key. GetInt takes every integer type, GetFloat both float types; an array's elements must be of the very type asked
  // for.
  absl::StatusOr<std::int64_t> GetInt(std::string_view key, std::int64_t min, std::int64_t max) const;
  absl::StatusOr<double> GetFloat(std::string_view key) const;  // finite
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<const GgufArray*> GetArray(std::string_view key, GgufValueType element_type) const;

 private:
  struct Contents;
  explicit GgufFile(std::unique_ptr<const Contents> contents);

  const std::unique_ptr<const Contents> contents_;
};

}  // namespace berth
