#include "config/quantity.h"

#include <array>
#include <charconv>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "config/diagnostics.h"
#include "config/size.h"

namespace berth {
namespace {

// A whole number and up to `decimals` decimals, times 10^decimals; what follows is left in `rest`. Below 10^15.
std::optional<std::int64_t> ReadFixed(std::string_view text, int decimals, std::string_view* rest) {
  constexpr std::size_t kMostDigits = 12;
  std::size_t at = 0;
  std::int64_t value = 0;
  const auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  const std::size_t first = at;
  for (; digit(); ++at) {
    if (at - first >= kMostDigits) return std::nullopt;
    value = value * 10 + (text[at] - '0');
  }
  if (at == first) return std::nullopt;
  int given = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    for (; digit(); ++at, ++given) {
      if (given == decimals) return std::nullopt;
      value = value * 10 + (text[at] - '0');
    }
    if (given == 0) return std::nullopt;
  }
  for (; given < decimals; ++given) value *= 10;
  *rest = text.substr(at);
  return value;
}

struct TimeUnit {
  std::string_view name;
  std::int64_t nanoseconds;
};

constexpr std::array<TimeUnit, 7> kTimeUnits = {{{"d", 86'400'000'000'000},
                                                 {"h", 3'600'000'000'000},
                                                 {"m", 60'000'000'000},
                                                 {"s", 1'000'000'000},
                                                 {"ms", 1'000'000},
                                                 {"us", 1'000},
                                                 {"ns", 1}}};
constexpr std::int64_t kMostNanoseconds = 365 * kTimeUnits[0].nanoseconds;

const TimeUnit* FindTimeUnit(std::string_view name) {
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

absl::Status BadDuration(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(text), " is no time; write a number and a unit, such as 500ms, 2s or 1m30s"));
}

absl::Status TooLong(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(Shown(text), " is too long a time; at most 365d"));
}

std::optional<std::int64_t> Blocks(const Quantity& quantity, std::int64_t pool_blocks, std::int64_t block_bytes,
                                   bool up) {
  std::int64_t whole = quantity.amount;
  std::int64_t divisor = 1;
  if (quantity.unit == QuantityUnit::kShare) {
    whole *= pool_blocks;  // below 2^31 · 2^20
    divisor = kWholeMillionths;
  } else if (quantity.unit == QuantityUnit::kBytes) {
    if (block_bytes <= 0) return std::nullopt;
    divisor = block_bytes;
  }
  return whole / divisor + (up && whole % divisor != 0 ? 1 : 0);
}

}  // namespace

absl::StatusOr<Quantity> ParseQuantity(std::string_view text) {
  if (text.ends_with('%')) {
    const absl::StatusOr<std::int64_t> share = ParseShare(text);
    if (!share.ok()) return share.status();
    return Quantity{QuantityUnit::kShare, *share};
  }
  std::int64_t blocks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), blocks);
  if (error == std::errc() && end == text.data() + text.size() && blocks >= 0) {
    return Quantity{QuantityUnit::kBlocks, blocks};
  }
  const absl::StatusOr<std::int64_t> bytes = ParseByteSize(text);
  if (!bytes.ok()) return bytes.status();
  return Quantity{QuantityUnit::kBytes, *bytes};
}

absl::StatusOr<std::int64_t> ParseShare(std::string_view text) {
  std::string_view rest;
  const std::optional<std::int64_t> share = ReadFixed(text, 4, &rest);
  if (!share || rest != "%" || *share > 100 * kWholeMillionths) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(text), " is no share; write a number and %, such as 60% or 12.5%"));
  }
  return *share;
}

absl::StatusOr<Duration> ParseDuration(std::string_view text) {
  if (text == "0") return Duration(0);
  std::int64_t total = 0;
  std::int64_t previous_unit = kMostNanoseconds;
  for (std::string_view rest = text; !rest.empty() || text.empty();) {
    const std::optional<std::int64_t> number = ReadFixed(rest, 3, &rest);
    if (!number) return BadDuration(text);
    const std::string_view name = rest.substr(0, rest.find_first_not_of("dhmsun"));
    const TimeUnit* unit = FindTimeUnit(name);
    if (unit == nullptr || unit->nanoseconds >= previous_unit) return BadDuration(text);
    if (*number / 1000 > kMostNanoseconds / unit->nanoseconds) return TooLong(text);
    // Below a microsecond the decimals are dropped.
    total += unit->nanoseconds >= 1000 ? *number * (unit->nanoseconds / 1000) : *number * unit->nanoseconds / 1000;
    previous_unit = unit->nanoseconds;
    rest.remove_prefix(name.size());
  }
  return total > kMostNanoseconds ? absl::StatusOr<Duration>(TooLong(text)) : Duration(total);
}

std::string FormatByteSize(std::int64_t bytes) {
  static constexpr std::array<const char*, 4> kNames = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes == 0) return "0";
  const char* name = "B";
  for (std::size_t i = 0; i < kNames.size() && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    name = kNames[i];
  }
  return absl::StrCat(bytes, name);
}

std::string FormatShare(std::int64_t millionths) {
  std::string text = std::to_string(millionths / 10'000);
  if (std::int64_t part = millionths % 10'000; part != 0) {
    std::string decimals = std::to_string(10'000 + part).substr(1);
    while (decimals.back() == '0') decimals.pop_back();
    text += "." + decimals;
  }
  return text + "%";
}

std::string FormatQuantity(const Quantity& quantity) {
  switch (quantity.unit) {
    case QuantityUnit::kBlocks:
      return std::to_string(quantity.amount);
    case QuantityUnit::kBytes:
      return FormatByteSize(quantity.amount);
    case QuantityUnit::kShare:
      return FormatShare(quantity.amount);
  }
  return "?";
}

std::string FormatDuration(Duration duration) {
  const std::int64_t nanoseconds = duration.count();
  if (nanoseconds == 0) return "0s";
  for (const TimeUnit& unit : kTimeUnits) {
    if (nanoseconds % unit.nanoseconds == 0)
      return absl::StrCat(nanoseconds / unit.nanoseconds, std::string(unit.name));
  }
  return "?";
}

std::optional<std::int64_t> PromisedBlocks(const Quantity& quantity, std::int64_t pool_blocks,
                                           std::int64_t block_bytes) {
  return Blocks(quantity, pool_blocks, block_bytes, false);
}

std::optional<std::int64_t> LimitBlocks(const Quantity& quantity, std::int64_t pool_blocks, std::int64_t block_bytes) {
  return Blocks(quantity, pool_blocks, block_bytes, true);
}

}  // namespace berth
