// Amounts as an operator writes them, kept as given until they meet a pool.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "berth/clock.h"

namespace berth {

// A share of a whole in millionths, so that "33.3%" is exact: 100% is 1,000,000.
inline constexpr std::int64_t kWholeMillionths = 1'000'000;

enum class QuantityUnit : std::uint8_t { kBlocks, kBytes, kShare };

struct Quantity {
  QuantityUnit unit = QuantityUnit::kBlocks;
  std::int64_t amount = 0;  // blocks, bytes or millionths

  bool operator==(const Quantity&) const = default;
};

constexpr Quantity PercentOf(std::int64_t percent) { return {QuantityUnit::kShare, percent * 10'000}; }

// "60%", "2GiB" or "128" (blocks); 0 needs no unit and is 0 blocks. Errors quote the text.
absl::StatusOr<Quantity> ParseQuantity(std::string_view text);
// "12.5%" → 125,000; at most four decimals.
absl::StatusOr<std::int64_t> ParseShare(std::string_view text);
// "500ms", "2s", "1.5h", "1m30s": ns, us, ms, s, m, h and d, at most three decimals; 0 needs no unit.
absl::StatusOr<Duration> ParseDuration(std::string_view text);

// As it may stand in a file: the largest unit that needs no fraction. Reading it back gives the same value.
std::string FormatQuantity(const Quantity& quantity);
std::string FormatByteSize(std::int64_t bytes);
std::string FormatShare(std::int64_t millionths);
std::string FormatDuration(Duration duration);

// Shares and bytes in blocks. What is promised (a guarantee, and what of it is lent) rounds down, so that promises of
// 100% together fit the pool; a limit (borrowing, a tenant's max_kv) rounds up, so that a ceiling of 100% is the whole
// pool. Nothing where the quantity is in bytes and a block's bytes are not known (0). REQUIRES: 0 ≤ pool_blocks < 2^31.
std::optional<std::int64_t> PromisedBlocks(const Quantity& quantity, std::int64_t pool_blocks,
                                           std::int64_t block_bytes);
std::optional<std::int64_t> LimitBlocks(const Quantity& quantity, std::int64_t pool_blocks, std::int64_t block_bytes);

}  // namespace berth
