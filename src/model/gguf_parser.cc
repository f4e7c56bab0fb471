#include "model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace berth {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian and read in place");

// The least a tensor takes of a file with the default alignment: an entry of 34 bytes or more and data that starts at a
// multiple of 32. A file with fewer bytes per claimed tensor lies, and the table of tensors never outgrows the file.
constexpr std::uint64_t kLeastTensorBytes = 64;
static_assert(sizeof(GgufTensor) <= kLeastTensorBytes);

constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;  // length, one character, type, the smallest value
constexpr std::uint64_t kArrayHeaderBytes = 4 + 8;       // element type, count
constexpr std::uint64_t kMaxDims = 4;

std::string DimsForMessage(std::span<const std::int64_t> dims) {
  std::string text;
  for (const std::int64_t dim : dims) absl::StrAppend(&text, text.empty() ? "" : "x", dim);
  return text;
}

// nullopt where it does not fit 63 bits.
std::optional<std::int64_t> Multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace

// Reads front to back. Every Read* leaves the position where it was when it fails for want of bytes.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  absl::StatusOr<GgufParts> Parse() {
    for (auto stage : {&GgufParser::ReadHeader, &GgufParser::ReadMetadata, &GgufParser::ReadAlignment,
                       &GgufParser::ReadTensorEntries, &GgufParser::SortTensorNames, &GgufParser::PlaceTensors,
                       &GgufParser::RefuseOverlaps}) {
      if (absl::Status status = (this->*stage)(); !status.ok()) return status;
    }
    return std::move(parts_);
  }

 private:
  absl::Status ReadHeader();
  absl::Status ReadMetadata();
  absl::Status ReadAlignment();
  absl::Status ReadTensorEntries();
  absl::Status SortTensorNames();
  absl::Status PlaceTensors();
  absl::Status RefuseOverlaps();

  absl::Status ReadKey(std::string_view* key);
  absl::Status ReadValue(GgufValue* value);
  void ReadScalar(GgufValue* value);  // REQUIRES: its bytes are there
  absl::Status ReadArray(GgufArray* array, int depth);
  absl::Status ReadStrings(GgufArray* array);
  absl::Status ReadValueType(GgufValueType* type);
  absl::Status ReadString(std::string_view* text);
  absl::Status ReadTensorEntry(GgufTensor* tensor);
  absl::Status ReadDims(GgufTensor* tensor);
  absl::Status CheckTensorSize(const GgufTensor& tensor);

  template <typename T>
  bool Read(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, file_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  template <typename T>
  T Take() {
    T value{};
    Read(&value);
    return value;
  }
  std::uint64_t left() const { return file_.size() - position_; }

  // "path: where: what"
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", where_, where_.empty() ? "" : ": ", what));
  }
  absl::Status Cut() const { return Error(absl::StrCat("the file ends inside it, at byte ", file_.size())); }
  absl::Status TensorError(const GgufTensor& tensor, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor ", QuoteForMessage(tensor.name), ": ", what));
  }

  const std::span<const std::byte> file_;
  const std::string& path_;
  std::uint64_t position_ = 0;
  std::string where_;  // what is being read, for messages
  std::uint64_t key_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  std::vector<std::uint64_t> offsets_;  // of the tensors' data, as claimed
  GgufParts parts_;
};

absl::Status GgufParser::ReadHeader() {
  constexpr std::string_view kMagic = "GGUF";
  if (left() < kMagic.size() || std::memcmp(file_.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error("is not a GGUF file: it does not start with 'GGUF'");
  }
  position_ += kMagic.size();
  where_ = "the header";
  std::uint32_t version = 0;
  if (!Read(&version)) return Cut();
  if (version != 0 && (version & 0xFFFFU) == 0) {
    return Error("the file is big-endian; only little-endian files are served: convert the model again");
  }
  if (version != 3) {
    return Error(absl::StrCat("GGUF version ", version, " is not served, only version 3: convert the model again"));
  }
  if (!Read(&tensor_count_) || !Read(&key_count_)) return Cut();
  const std::uint64_t most_tensors = std::min<std::uint64_t>(kMaxGgufTensors, file_.size() / kLeastTensorBytes);
  if (tensor_count_ > most_tensors) {
    return Error(absl::StrCat("claims ", tensor_count_, " tensors, but a file of ", file_.size(),
                              " bytes may hold at most ", most_tensors));
  }
  const std::uint64_t most_keys = std::min<std::uint64_t>(kMaxGgufKeys, left() / kLeastKeyBytes);
  if (key_count_ > most_keys) {
    return Error(absl::StrCat("claims ", key_count_, " metadata keys, but a file of ", file_.size(),
                              " bytes may hold at most ", most_keys));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadMetadata() {
  for (std::uint64_t i = 0; i < key_count_; ++i) {
    where_ = absl::StrCat("metadata key ", i + 1, " of ", key_count_);
    std::string_view key;
    if (absl::Status status = ReadKey(&key); !status.ok()) return status;
    where_ = absl::StrCat("metadata key ", QuoteForMessage(key));
    GgufValue value;
    if (absl::Status status = ReadValue(&value); !status.ok()) return status;
    if (!parts_.metadata.emplace(key, std::move(value)).second) return Error("is there twice");
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadKey(std::string_view* key) {
  if (absl::Status status = ReadString(key); !status.ok()) return status;
  if (key->empty()) return Error("has an empty name");
  if (key->size() > kMaxGgufKeyBytes) {
    return Error(absl::StrCat("has a name of ", key->size(), " bytes; at most ", kMaxGgufKeyBytes, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadValueType(GgufValueType* type) {
  std::uint32_t id = 0;
  if (!Read(&id)) return Cut();
  if (id > static_cast<std::uint32_t>(GgufValueType::kF64)) {
    return Error(absl::StrCat("has the unknown value type ", id));
  }
  *type = static_cast<GgufValueType>(id);
  return absl::OkStatus();
}

absl::Status GgufParser::ReadValue(GgufValue* value) {
  if (absl::Status status = ReadValueType(&value->type); !status.ok()) return status;
  switch (value->type) {
    case GgufValueType::kString:
      return ReadString(&value->value.emplace<std::string_view>());
    case GgufValueType::kArray: {
      GgufArray array;
      absl::Status status = ReadArray(&array, 1);
      value->value = std::move(array);
      return status;
    }
    case GgufValueType::kBool: {
      std::uint8_t byte = 0;
      if (!Read(&byte)) return Cut();
      if (byte > 1) return Error(absl::StrCat("is a bool with the value ", int{byte}, "; only 0 and 1 are allowed"));
      value->value = byte == 1;
      return absl::OkStatus();
    }
    default:
      if (left() < GgufScalarBytes(value->type)) return Cut();
      ReadScalar(value);
      return absl::OkStatus();
  }
}

void GgufParser::ReadScalar(GgufValue* value) {
  switch (value->type) {
    case GgufValueType::kU8:
      value->value = std::uint64_t{Take<std::uint8_t>()};
      break;
    case GgufValueType::kU16:
      value->value = std::uint64_t{Take<std::uint16_t>()};
      break;
    case GgufValueType::kU32:
      value->value = std::uint64_t{Take<std::uint32_t>()};
      break;
    case GgufValueType::kU64:
      value->value = Take<std::uint64_t>();
      break;
    case GgufValueType::kI8:
      value->value = std::int64_t{Take<std::int8_t>()};
      break;
    case GgufValueType::kI16:
      value->value = std::int64_t{Take<std::int16_t>()};
      break;
    case GgufValueType::kI32:
      value->value = std::int64_t{Take<std::int32_t>()};
      break;
    case GgufValueType::kI64:
      value->value = Take<std::int64_t>();
      break;
    case GgufValueType::kF32:
      value->value = double{Take<float>()};
      break;
    case GgufValueType::kF64:
      value->value = Take<double>();
      break;
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
}

absl::Status GgufParser::ReadArray(GgufArray* array, int depth) {
  if (depth > kMaxGgufArrayDepth) {
    return Error(absl::StrCat("nests arrays deeper than the ", kMaxGgufArrayDepth, " levels allowed"));
  }
  if (absl::Status status = ReadValueType(&array->element_type_); !status.ok()) return status;
  std::uint64_t count = 0;
  if (!Read(&count)) return Cut();
  std::uint64_t least_bytes = GgufScalarBytes(array->element_type_);
  if (array->element_type_ == GgufValueType::kString) least_bytes = sizeof(std::uint64_t);
  if (array->element_type_ == GgufValueType::kArray) least_bytes = kArrayHeaderBytes;
  if (count > left() / least_bytes) {
    return Error(absl::StrCat("claims an array of ", count, " elements of ", least_bytes, " bytes or more, but only ",
                              left(), " bytes are left in the file"));
  }
  array->size_ = static_cast<std::int64_t>(count);
  array->data_ = file_.data() + position_;
  if (array->element_type_ == GgufValueType::kString) return ReadStrings(array);
  if (array->element_type_ == GgufValueType::kArray) {
    for (std::uint64_t i = 0; i < count; ++i) {
      GgufArray inner;
      if (absl::Status status = ReadArray(&inner, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  position_ += count * least_bytes;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadStrings(GgufArray* array) {
  const std::uint64_t start = position_;
  // 8 bytes for each string, whose length alone takes 8 bytes of the file.
  array->string_offsets_.reserve(static_cast<std::size_t>(array->size_));
  for (std::int64_t i = 0; i < array->size_; ++i) {
    array->string_offsets_.push_back(position_ - start);
    std::string_view text;
    if (absl::Status status = ReadString(&text); !status.ok()) {
      where_ += absl::StrCat(" element ", i);
      position_ = start + array->string_offsets_.back();
      return ReadString(&text);
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadString(std::string_view* text) {
  std::uint64_t length = 0;
  if (!Read(&length)) return Cut();
  if (length > left()) {
    position_ -= sizeof(length);
    return Error(absl::StrCat("claims a string of ", length, " bytes, but only ", left() - sizeof(length),
                              " are left in the file"));
  }
  *text = std::string_view(reinterpret_cast<const char*>(file_.data() + position_), static_cast<std::size_t>(length));
  position_ += length;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadAlignment() {
  const auto found = parts_.metadata.find("general.alignment");
  if (found == parts_.metadata.end()) return absl::OkStatus();
  where_ = "metadata key 'general.alignment'";
  if (found->second.type != GgufValueType::kU32) {
    return Error(absl::StrCat("is ", DescribeGgufValueType(found->second.type), ", not a uint32"));
  }
  alignment_ = std::get<std::uint64_t>(found->second.value);
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxGgufAlignment) {
    return Error(absl::StrCat("is ", alignment_, ", not a power of two from 1 to ", kMaxGgufAlignment));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensorEntries() {
  parts_.tensors.reserve(tensor_count_);
  offsets_.reserve(tensor_count_);
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    where_ = absl::StrCat("tensor entry ", i + 1, " of ", tensor_count_);
    GgufTensor tensor;
    if (absl::Status status = ReadTensorEntry(&tensor); !status.ok()) return status;
    parts_.tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensorEntry(GgufTensor* tensor) {
  if (absl::Status status = ReadString(&tensor->name); !status.ok()) return status;
  if (tensor->name.empty()) return Error("has an empty name");
  if (tensor->name.size() > kMaxGgufTensorNameBytes) {
    return Error(absl::StrCat("has a name of ", tensor->name.size(), " bytes; at most ", kMaxGgufTensorNameBytes,
                              " are allowed"));
  }
  where_ = absl::StrCat("tensor ", QuoteForMessage(tensor->name));
  if (absl::Status status = ReadDims(tensor); !status.ok()) return status;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  if (!Read(&type) || !Read(&offset)) return Cut();
  if (!IsServedGgufTensorType(type)) {
    return Error(absl::StrCat("is of type ", GgmlTypeName(type),
                              ", which is not served; served types: ", ServedGgufTensorTypes()));
  }
  tensor->type = static_cast<GgufTensorType>(type);
  offsets_.push_back(offset);
  return CheckTensorSize(*tensor);
}

absl::Status GgufParser::ReadDims(GgufTensor* tensor) {
  std::uint32_t count = 0;
  if (!Read(&count)) return Cut();
  if (count < 1 || count > kMaxDims) {
    return Error(absl::StrCat("has ", count, " dimensions; 1 to ", kMaxDims, " are allowed"));
  }
  tensor->dims.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t dim = 0;
    if (!Read(&dim)) return Cut();
    if (dim < 1 || dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return Error(absl::StrCat("dimension ", i, " is ", dim, ", outside 1 to 2^63-1"));
    }
    tensor->dims.push_back(static_cast<std::int64_t>(dim));
  }
  return absl::OkStatus();
}

// That its elements and bytes can be counted in 63 bits; whether they are in the file is PlaceTensors' to say.
absl::Status GgufParser::CheckTensorSize(const GgufTensor& tensor) {
  std::optional<std::int64_t> elements = 1;
  for (const std::int64_t dim : tensor.dims) {
    elements = Multiply(*elements, dim);
    if (!elements) return Error(absl::StrCat(DimsForMessage(tensor.dims), " elements are more than 2^63-1"));
  }
  const std::int64_t block = GgufBlockElements(tensor.type);
  if (tensor.cols() % block != 0) {
    return Error(absl::StrCat("its rows of ", tensor.cols(), " elements are no multiple of the ", block,
                              " in a block of ", GgufTensorTypeName(tensor.type)));
  }
  if (!Multiply(*elements / block, GgufBlockBytes(tensor.type))) {
    return Error(absl::StrCat(DimsForMessage(tensor.dims), " elements of ", GgufTensorTypeName(tensor.type),
                              " take more than 2^63-1 bytes"));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::SortTensorNames() {
  std::vector<std::uint32_t>& order = parts_.tensors_by_name;
  order.resize(parts_.tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto name = [this](std::uint32_t i) { return parts_.tensors[i].name; };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (name(order[i - 1]) == name(order[i])) return TensorError(parts_.tensors[order[i]], "is there twice");
  }
  return absl::OkStatus();
}

absl::Status GgufParser::PlaceTensors() {
  where_.clear();
  const std::uint64_t start = (position_ + alignment_ - 1) / alignment_ * alignment_;
  const std::uint64_t data_bytes = start < file_.size() ? file_.size() - start : 0;
  for (std::size_t i = 0; i < parts_.tensors.size(); ++i) {
    GgufTensor& tensor = parts_.tensors[i];
    const std::uint64_t offset = offsets_[i];
    const std::int64_t blocks = tensor.elements() / GgufBlockElements(tensor.type);
    const std::uint64_t bytes = static_cast<std::uint64_t>(blocks * GgufBlockBytes(tensor.type));
    if (offset % alignment_ != 0) {
      return TensorError(tensor,
                         absl::StrCat("its data offset ", offset, " is no multiple of the alignment ", alignment_));
    }
    if (offset > data_bytes || bytes > data_bytes - offset) {
      return TensorError(tensor, absl::StrCat("its ", bytes, " bytes at data offset ", offset, " end past the file's ",
                                              data_bytes, " bytes of tensor data"));
    }
    tensor.data = file_.subspan(start + offset, bytes);
  }
  return absl::OkStatus();
}

absl::Status GgufParser::RefuseOverlaps() {
  std::vector<std::uint32_t> order = parts_.tensors_by_name;
  std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) { return offsets_[a] < offsets_[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = parts_.tensors[order[i - 1]];
    const GgufTensor& after = parts_.tensors[order[i]];
    if (before.data.data() + before.data.size() > after.data.data()) {
      return TensorError(after, absl::StrCat("its data overlaps that of tensor ", QuoteForMessage(before.name)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufParts> ParseGguf(std::span<const std::byte> file, const std::string& path) {
  return GgufParser(file, path).Parse();
}

}  // namespace berth
