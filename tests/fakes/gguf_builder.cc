#include "fakes/gguf_builder.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace berth::test {
namespace {

// Value type ids of GGUF.
enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

std::string ArrayBytes(std::uint32_t element_type, std::uint64_t count, std::string_view elements) {
  return BytesOf(element_type) + BytesOf(count) + std::string(elements);
}

std::uint64_t AlignUp(std::uint64_t position, std::uint64_t alignment) {
  return (position + alignment - 1) / alignment * alignment;
}

void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) {
    std::cerr << "cannot write " << path << '\n';
    std::abort();
  }
}

}  // namespace

std::string GgufString(std::string_view text) { return BytesOf(std::uint64_t{text.size()}) + std::string(text); }

GgufBuilder& GgufBuilder::AddRaw(std::string_view key, std::uint32_t value_type, std::string_view bytes) {
  keys_.push_back({std::string(key), value_type, std::string(bytes)});
  return *this;
}

GgufBuilder& GgufBuilder::AddU8(std::string_view key, std::uint8_t value) { return AddRaw(key, kU8, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddI8(std::string_view key, std::int8_t value) { return AddRaw(key, kI8, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddU16(std::string_view key, std::uint16_t value) {
  return AddRaw(key, kU16, BytesOf(value));
}
GgufBuilder& GgufBuilder::AddI16(std::string_view key, std::int16_t value) { return AddRaw(key, kI16, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddU32(std::string_view key, std::uint32_t value) {
  return AddRaw(key, kU32, BytesOf(value));
}
GgufBuilder& GgufBuilder::AddI32(std::string_view key, std::int32_t value) { return AddRaw(key, kI32, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddU64(std::string_view key, std::uint64_t value) {
  return AddRaw(key, kU64, BytesOf(value));
}
GgufBuilder& GgufBuilder::AddI64(std::string_view key, std::int64_t value) { return AddRaw(key, kI64, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddF32(std::string_view key, float value) { return AddRaw(key, kF32, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddF64(std::string_view key, double value) { return AddRaw(key, kF64, BytesOf(value)); }
GgufBuilder& GgufBuilder::AddBool(std::string_view key, bool value) {
  return AddRaw(key, kBool, BytesOf(static_cast<std::uint8_t>(value ? 1 : 0)));
}
GgufBuilder& GgufBuilder::AddString(std::string_view key, std::string_view value) {
  return AddRaw(key, kString, GgufString(value));
}

GgufBuilder& GgufBuilder::AddStringArray(std::string_view key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += GgufString(value);
  return AddRaw(key, kArray, ArrayBytes(kString, values.size(), elements));
}
GgufBuilder& GgufBuilder::AddF32Array(std::string_view key, const std::vector<float>& values) {
  return AddRaw(key, kArray, ArrayBytes(kF32, values.size(), BytesOfAll(values)));
}
GgufBuilder& GgufBuilder::AddI32Array(std::string_view key, const std::vector<std::int32_t>& values) {
  return AddRaw(key, kArray, ArrayBytes(kI32, values.size(), BytesOfAll(values)));
}
GgufBuilder& GgufBuilder::AddU32Array(std::string_view key, const std::vector<std::uint32_t>& values) {
  return AddRaw(key, kArray, ArrayBytes(kU32, values.size(), BytesOfAll(values)));
}
GgufBuilder& GgufBuilder::AddI8Array(std::string_view key, const std::vector<std::int8_t>& values) {
  return AddRaw(key, kArray, ArrayBytes(kI8, values.size(), BytesOfAll(values)));
}

GgufBuilder& GgufBuilder::Remove(std::string_view key) {
  std::erase_if(keys_, [key](const Key& k) { return k.name == key; });
  return *this;
}

GgufBuilder& GgufBuilder::AddTensor(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& dims,
                                    std::string_view data) {
  tensors_.push_back({std::string(name), type, dims, std::string(data), std::nullopt});
  return *this;
}
GgufBuilder& GgufBuilder::AddF32Tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                                       const std::vector<float>& values) {
  return AddTensor(name, gguf_type::kF32, dims, BytesOfAll(values));
}

GgufBuilder& GgufBuilder::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [name](const Tensor& t) { return t.name == name; });
  return *this;
}

GgufBuilder& GgufBuilder::ClaimTensorOffset(std::string_view name, std::uint64_t offset) {
  for (Tensor& tensor : tensors_) {
    if (tensor.name == name) tensor.claimed_offset = offset;
  }
  return *this;
}

GgufBuilder& GgufBuilder::ClaimVersion(std::uint32_t version) {
  version_ = version;
  return *this;
}
GgufBuilder& GgufBuilder::ClaimKeyCount(std::uint64_t count) {
  claimed_keys_ = count;
  return *this;
}
GgufBuilder& GgufBuilder::ClaimTensorCount(std::uint64_t count) {
  claimed_tensors_ = count;
  return *this;
}
GgufBuilder& GgufBuilder::LayOutWithAlignment(std::uint32_t alignment) {
  alignment_ = alignment;
  return *this;
}

std::string GgufBuilder::Bytes() const {
  std::string out = "GGUF" + BytesOf(version_) + BytesOf(claimed_tensors_.value_or(tensors_.size())) +
                    BytesOf(claimed_keys_.value_or(keys_.size()));
  for (const Key& key : keys_) out += GgufString(key.name) + BytesOf(key.type) + key.bytes;
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    out += GgufString(tensor.name) + BytesOf(static_cast<std::uint32_t>(tensor.dims.size())) + BytesOfAll(tensor.dims) +
           BytesOf(tensor.type) + BytesOf(tensor.claimed_offset.value_or(offset));
    offset = AlignUp(offset + tensor.data.size(), alignment_);
  }
  for (const Tensor& tensor : tensors_) {
    out.resize(AlignUp(out.size(), alignment_));
    out += tensor.data;
  }
  return out;
}

void GgufBuilder::Write(const std::string& path) const { WriteFile(path, Bytes()); }

ScratchFile::ScratchFile() {
  static std::atomic<int> next = 0;
  path_ = std::filesystem::temp_directory_path() /
          ("berth-" + std::to_string(::getpid()) + "-" + std::to_string(next++) + ".gguf");
}
ScratchFile::ScratchFile(std::string_view bytes) : ScratchFile() { Write(bytes); }
ScratchFile::~ScratchFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}
void ScratchFile::Write(std::string_view bytes) const { WriteFile(path_, bytes); }

}  // namespace berth::test
