#include "config/size.h"

#include <array>
#include <charconv>
#include <cstdio>

#include "absl/status/status.h"
#include "config/diagnostics.h"

namespace berth {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 13> kUnits = {{{"B", 1.0},
                                          {"KiB", kKi},
                                          {"MiB", kKi* kKi},
                                          {"GiB", kKi* kKi* kKi},
                                          {"TiB", kKi* kKi* kKi* kKi},
                                          {"Ki", kKi},
                                          {"Mi", kKi* kKi},
                                          {"Gi", kKi* kKi* kKi},
                                          {"Ti", kKi* kKi* kKi* kKi},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12}}};
// 2^53: every whole number of bytes up to it is exact in a double.
constexpr double kMaxBytes = 9007199254740992.0;

}  // namespace

absl::StatusOr<std::int64_t> ParseByteSize(std::string_view text) {
  const std::string quoted = Shown(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) {
    return absl::InvalidArgumentError("a size is a number and a unit, such as 2GiB or 512MiB, not " + quoted);
  }
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) {
    if (number == 0) return 0;
    return absl::InvalidArgumentError("a size needs a unit, such as 2GiB or 512MiB, and " + quoted + " has none");
  }
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (bytes > kMaxBytes) return absl::InvalidArgumentError("a size is at most 8192TiB, not " + quoted);
    return static_cast<std::int64_t>(bytes);
  }
  return absl::InvalidArgumentError("a size's unit is one of KiB, MiB, GiB, TiB, kB, MB, GB, TB or B, not " +
                                    Shown(unit));
}

std::string FormatBytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.95 would print as "1024.0": it belongs to the next unit.
  while (value >= 1023.95 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kNames[unit]);
  return text.data();
}

}  // namespace berth
