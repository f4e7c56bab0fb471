// Writes GGUF files for tests: small models, and files that lie about themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::test {

// Tensor type ids of GGUF, also those that are not served.
namespace gguf_type {
inline constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ8_0 = 8, kQ4_K = 12, kQ6_K = 14,
                               kI32 = 26, kBF16 = 30;
}  // namespace gguf_type

// Metadata and tensors are written in the order they were added, nothing is checked, and the overrides change what the
// file claims without changing what it holds. Calls chain:
//
//   GgufBuilder().AddString("general.architecture", "llama").AddU32("llama.block_count", 2).Write(path);
class GgufBuilder {
 public:
  GgufBuilder& AddU8(std::string_view key, std::uint8_t value);
  GgufBuilder& AddI8(std::string_view key, std::int8_t value);
  GgufBuilder& AddU16(std::string_view key, std::uint16_t value);
  GgufBuilder& AddI16(std::string_view key, std::int16_t value);
  GgufBuilder& AddU32(std::string_view key, std::uint32_t value);
  GgufBuilder& AddI32(std::string_view key, std::int32_t value);
  GgufBuilder& AddU64(std::string_view key, std::uint64_t value);
  GgufBuilder& AddI64(std::string_view key, std::int64_t value);
  GgufBuilder& AddF32(std::string_view key, float value);
  GgufBuilder& AddF64(std::string_view key, double value);
  GgufBuilder& AddBool(std::string_view key, bool value);
  GgufBuilder& AddString(std::string_view key, std::string_view value);
  GgufBuilder& AddStringArray(std::string_view key, const std::vector<std::string>& values);
  GgufBuilder& AddF32Array(std::string_view key, const std::vector<float>& values);
  GgufBuilder& AddI32Array(std::string_view key, const std::vector<std::int32_t>& values);
  GgufBuilder& AddU32Array(std::string_view key, const std::vector<std::uint32_t>& values);
  GgufBuilder& AddI8Array(std::string_view key, const std::vector<std::int8_t>& values);
  // Any value type with any bytes behind it.
  GgufBuilder& AddRaw(std::string_view key, std::uint32_t value_type, std::string_view bytes);
  // Drops every value of the key; what is added later takes its place at the end.
  GgufBuilder& Remove(std::string_view key);

  // dims are fastest first ({cols, rows}); data is placed at the next multiple of the alignment.
  GgufBuilder& AddTensor(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& dims,
                         std::string_view data);
  GgufBuilder& AddF32Tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                            const std::vector<float>& values);
  // Drops the tensor and its data.
  GgufBuilder& RemoveTensor(std::string_view name);
  // The entry claims this offset; the data stays where it is.
  GgufBuilder& ClaimTensorOffset(std::string_view name, std::uint64_t offset);

  GgufBuilder& ClaimVersion(std::uint32_t version);
  GgufBuilder& ClaimKeyCount(std::uint64_t count);
  GgufBuilder& ClaimTensorCount(std::uint64_t count);
  // How data is laid out (default 32). Does not add the key general.alignment.
  GgufBuilder& LayOutWithAlignment(std::uint32_t alignment);

  std::string Bytes() const;
  // Aborts the test program where the file cannot be written.
  void Write(const std::string& path) const;

 private:
  struct Key {
    std::string name;
    std::uint32_t type;
    std::string bytes;
  };
  struct Tensor {
    std::string name;
    std::uint32_t type;
    std::vector<std::uint64_t> dims;
    std::string data;
    std::optional<std::uint64_t> claimed_offset;  // else where it is
  };

  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
  std::uint32_t version_ = 3;
  std::uint32_t alignment_ = 32;
  std::optional<std::uint64_t> claimed_keys_;  // else as many as there are
  std::optional<std::uint64_t> claimed_tensors_;
};

// The little-endian bytes of a number, for AddRaw and for data.
template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <typename T>
std::string BytesOfAll(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
// A GGUF string: length, then bytes.
std::string GgufString(std::string_view text);

// A file in the test's scratch folder that goes when the object does.
class ScratchFile {
 public:
  ScratchFile();
  explicit ScratchFile(std::string_view bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  void Write(std::string_view bytes) const;

 private:
  std::string path_;
};

// A llama model with random weights and a byte-fallback SentencePiece vocabulary; defaults give a file of some 100 KiB.
struct TinyLlama {
  std::uint32_t layers = 2;
  std::uint32_t hidden = 64;
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t ffn = 96;
  std::uint32_t vocab_size = 320;  // at least 260: <unk> <s> </s>, 256 bytes, the space; the rest are letters and pairs
  std::uint32_t context_tokens = 256;
  std::uint32_t matrix_type = gguf_type::kF32;  // a served type; rows must be whole blocks
  bool tied_embeddings = false;
  std::uint64_t seed = 1;
};
GgufBuilder MakeTinyLlama(const TinyLlama& spec = {});

// Valid data of a served type whose values spread evenly over about ±scale. `elements` is a multiple of the type's
// block.
std::string RandomTensorData(std::uint32_t type, std::uint64_t elements, float scale, std::uint64_t seed);

}  // namespace berth::test
