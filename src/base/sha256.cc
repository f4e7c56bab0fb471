#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace berth {
namespace {

using Bytes = std::array<unsigned char, sizeof(Sha256Digest)>;

Bytes BytesOf(std::string_view data) {
  Bytes bytes{};
  unsigned int size = 0;
  BERTH_CHECK(EVP_Digest(data.data(), data.size(), bytes.data(), &size, EVP_sha256(), nullptr) == 1);
  BERTH_CHECK(size == bytes.size());
  return bytes;
}

Sha256Digest Packed(const Bytes& bytes) {
  Sha256Digest digest{};
  std::memcpy(digest.data(), bytes.data(), bytes.size());
  return digest;
}

// -1 for what is no lower-case hexadecimal digit.
int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Sha256Digest Sha256(std::string_view data) { return Packed(BytesOf(data)); }

std::string Sha256Hex(std::string_view data) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : BytesOf(data)) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<Sha256Digest> ParseSha256(std::string_view hex) {
  Bytes bytes{};
  if (hex.size() != 2 * bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = DigitValue(hex[2 * i]);
    const int low = DigitValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<unsigned char>(16 * high + low);
  }
  return Packed(bytes);
}

}  // namespace berth
