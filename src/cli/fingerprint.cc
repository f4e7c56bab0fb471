#include "cli/fingerprint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"

namespace berth::cli {

void Fingerprint::Add(std::string_view part) {
  for (const char c : part) AddByte(static_cast<unsigned char>(c));
  const std::uint64_t bytes = part.size();
  for (unsigned shift = 0; shift < 64; shift += 8) AddByte(static_cast<unsigned char>(bytes >> shift));
}

std::string Fingerprint::Hex() const {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash_));
  return text.data();
}

absl::StatusOr<Fingerprint> FingerprintModel(const std::string& path) {
  constexpr std::streamoff kSample = 1 << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  Fingerprint fingerprint;
  std::string sample;
  for (const std::streamoff begin : {std::streamoff{0}, size / 2, size - kSample}) {
    sample.resize(
        static_cast<std::size_t>(std::clamp(size - std::max<std::streamoff>(begin, 0), std::streamoff{0}, kSample)));
    file.seekg(std::max<std::streamoff>(begin, 0));
    file.read(sample.data(), std::ssize(sample));
    fingerprint.Add(sample);
  }
  if (size < 0 || !file) return absl::InvalidArgumentError("cannot read " + path + ": " + std::strerror(errno));
  fingerprint.Add(std::to_string(size));
  return fingerprint;
}

}  // namespace berth::cli
