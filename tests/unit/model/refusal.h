// What every refused file owes: one clear line and no memory beyond the file's own size.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "allocation_probe.h"
#include "fakes/gguf_builder.h"

namespace berth::test {

// Messages and the small nodes of maps are not what a claim could blow up.
inline constexpr std::size_t kMessageBytes = 1024;

inline void ExpectOneClearLine(const absl::Status& status, const std::string& path,
                               const std::vector<std::string>& names) {
  const std::string message(status.message());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(message.starts_with(path + ": ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), path.size() + 600) << message;
  for (const std::string& name : names) EXPECT_THAT(message, testing::HasSubstr(name));
}

// `open` takes the path and returns a StatusOr.
template <typename Open>
void ExpectRefused(Open open, std::string_view bytes, const std::vector<std::string>& names) {
  const ScratchFile file(bytes);
  absl::Status status;
  std::size_t largest = 0;
  std::size_t total = 0;
  {
    const AllocationProbe probe;
    status = open(file.path()).status();
    largest = probe.largest_bytes();
    total = probe.total_bytes();
  }
  ASSERT_FALSE(status.ok()) << "was not refused";
  ExpectOneClearLine(status, file.path(), names);
  EXPECT_LE(largest, std::max(bytes.size(), kMessageBytes)) << status;
  EXPECT_LE(total, 16 * bytes.size() + 16 * kMessageBytes) << status;
}

}  // namespace berth::test
