// Anonymous memory whose pages cost nothing until they are touched.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"

namespace berth {

class MappedMemory {
 public:
  // Zero-filled, page-aligned. ResourceExhausted naming `what` and the bytes where the system has no such range.
  static absl::StatusOr<MappedMemory> Map(std::size_t bytes, std::string_view what);

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

  // Asks for large pages: fewer address translations for memory that will all be used.
  void PreferLargePages();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace berth
