#include "model/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "model/gguf_parser.h"
#include "model/mapped_file.h"

namespace berth {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::int64_t ClampToInt64(std::uint64_t value) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(value, kMax));
}

}  // namespace

std::int64_t GgufTensor::rows() const {
  std::int64_t product = 1;
  for (std::size_t i = 1; i < dims.size(); ++i) product *= dims[i];
  return product;
}

GgufValueType GgufArray::element_type() const { return element_type_; }
std::int64_t GgufArray::size() const { return size_; }

const std::byte* GgufArray::At(std::int64_t i) const {
  BERTH_CHECK(i >= 0 && i < size_);
  return data_ + static_cast<std::uint64_t>(i) * GgufScalarBytes(element_type_);
}

std::string_view GgufArray::StringAt(std::int64_t i) const {
  BERTH_CHECK(element_type_ == GgufValueType::kString && i >= 0 && i < size_);
  const std::byte* start = data_ + string_offsets_[static_cast<std::size_t>(i)];
  return {reinterpret_cast<const char*>(start + sizeof(std::uint64_t)), Load<std::uint64_t>(start)};
}

std::int64_t GgufArray::IntAt(std::int64_t i) const {
  switch (element_type_) {
    case GgufValueType::kU8:
      return Load<std::uint8_t>(At(i));
    case GgufValueType::kI8:
      return Load<std::int8_t>(At(i));
    case GgufValueType::kU16:
      return Load<std::uint16_t>(At(i));
    case GgufValueType::kI16:
      return Load<std::int16_t>(At(i));
    case GgufValueType::kU32:
      return Load<std::uint32_t>(At(i));
    case GgufValueType::kI32:
      return Load<std::int32_t>(At(i));
    case GgufValueType::kU64:
      return ClampToInt64(Load<std::uint64_t>(At(i)));
    case GgufValueType::kI64:
      return Load<std::int64_t>(At(i));
    default:
      BERTH_CHECK_MSG(false, DescribeGgufValueType(element_type_));
  }
  return 0;
}

double GgufArray::FloatAt(std::int64_t i) const {
  BERTH_CHECK(element_type_ == GgufValueType::kF32 || element_type_ == GgufValueType::kF64);
  return element_type_ == GgufValueType::kF32 ? double{Load<float>(At(i))} : Load<double>(At(i));
}

struct GgufFile::Contents {
  std::string path;
  MappedFile mapping;
  GgufParts parts;

  absl::Status KeyError(std::string_view key, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path, ": metadata key ", QuoteForMessage(key), " is ", what));
  }
  absl::StatusOr<const GgufValue*> Find(std::string_view key) const {
    const auto found = parts.metadata.find(key);
    if (found != parts.metadata.end()) return &found->second;
    return absl::NotFoundError(absl::StrCat(path, ": metadata key ", QuoteForMessage(key), " is missing"));
  }
  // The value as T, where the file's type is stored as T.
  template <typename T>
  absl::StatusOr<T> Get(std::string_view key, const char* wanted) const {
    absl::StatusOr<const GgufValue*> value = Find(key);
    if (!value.ok()) return value.status();
    const T* typed = std::get_if<T>(&(*value)->value);
    if (typed != nullptr) return *typed;
    return KeyError(key, absl::StrCat(DescribeGgufValueType((*value)->type), ", not ", wanted));
  }
};

GgufFile::GgufFile(std::unique_ptr<const Contents> contents) : contents_(std::move(contents)) {}
GgufFile::~GgufFile() = default;

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  absl::StatusOr<MappedFile> mapping = MappedFile::Open(path);
  if (!mapping.ok()) return mapping.status();
  absl::StatusOr<GgufParts> parts = ParseGguf(mapping->bytes(), path);
  if (!parts.ok()) return parts.status();
  auto contents = std::unique_ptr<const Contents>(new Contents{path, *std::move(mapping), *std::move(parts)});
  return std::unique_ptr<GgufFile>(new GgufFile(std::move(contents)));
}

const std::string& GgufFile::path() const { return contents_->path; }
std::int64_t GgufFile::file_bytes() const { return static_cast<std::int64_t>(contents_->mapping.bytes().size()); }
std::span<const GgufTensor> GgufFile::tensors() const { return contents_->parts.tensors; }

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const GgufParts& parts = contents_->parts;
  const auto at = std::lower_bound(parts.tensors_by_name.begin(), parts.tensors_by_name.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return parts.tensors[i].name < n; });
  if (at == parts.tensors_by_name.end() || parts.tensors[*at].name != name) return nullptr;
  return &parts.tensors[*at];
}

bool GgufFile::Has(std::string_view key) const { return contents_->parts.metadata.contains(key); }

absl::StatusOr<std::int64_t> GgufFile::GetInt(std::string_view key, std::int64_t min, std::int64_t max) const {
  absl::StatusOr<const GgufValue*> found = contents_->Find(key);
  if (!found.ok()) return found.status();
  const auto* from_signed = std::get_if<std::int64_t>(&(*found)->value);
  const auto* from_unsigned = std::get_if<std::uint64_t>(&(*found)->value);
  if (from_signed == nullptr && from_unsigned == nullptr) {
    return contents_->KeyError(key, absl::StrCat(DescribeGgufValueType((*found)->type), ", not an integer"));
  }
  const bool fits = from_signed != nullptr || std::in_range<std::int64_t>(*from_unsigned);
  const std::int64_t value = from_signed != nullptr ? *from_signed : ClampToInt64(*from_unsigned);
  if (fits && value >= min && value <= max) return value;
  const std::string shown = from_signed != nullptr ? absl::StrCat(value) : absl::StrCat(*from_unsigned);
  return contents_->KeyError(key, absl::StrCat(shown, ", outside ", min, " to ", max));
}

absl::StatusOr<double> GgufFile::GetFloat(std::string_view key) const {
  absl::StatusOr<double> value = contents_->Get<double>(key, "a float");
  if (value.ok() && !std::isfinite(*value))
    return contents_->KeyError(key, absl::StrCat(*value, ", not a finite number"));
  return value;
}

absl::StatusOr<bool> GgufFile::GetBool(std::string_view key) const { return contents_->Get<bool>(key, "a bool"); }

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  return contents_->Get<std::string_view>(key, "a string");
}

absl::StatusOr<const GgufArray*> GgufFile::GetArray(std::string_view key, GgufValueType element_type) const {
  absl::StatusOr<const GgufValue*> found = contents_->Find(key);
  if (!found.ok()) return found.status();
  const auto* array = std::get_if<GgufArray>(&(*found)->value);
  const std::string wanted = absl::StrCat("an array whose elements are each ", DescribeGgufValueType(element_type));
  if (array == nullptr) {
    return contents_->KeyError(key, absl::StrCat(DescribeGgufValueType((*found)->type), ", not ", wanted));
  }
  if (array->element_type() != element_type) {
    return contents_->KeyError(key, absl::StrCat("an array whose elements are each ",
                                                 DescribeGgufValueType(array->element_type()), ", not ", wanted));
  }
  return array;
}

}  // namespace berth
