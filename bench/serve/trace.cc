#include "trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/input.h"

namespace berth::bench {
namespace {

constexpr double kMostTokens = 1 << 24;

struct Row {
  double seconds = 0.0;
  double prompt_tokens = 0.0;
  double output_tokens = 0.0;
};

std::optional<double> Number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "2023-11-16 18:17:03.97996", in seconds since 1970.
std::optional<double> Instant(std::string_view text) {
  std::array<int, 5> parts{};  // year, month, day, hour, minute
  constexpr std::array<char, 5> kEnds = {'-', '-', ' ', ':', ':'};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, parts[i]);
    if (error != std::errc() || end == last || *end != kEnds[i]) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  }
  const std::chrono::year year(parts[0]);
  const std::chrono::month month(static_cast<unsigned>(parts[1]));
  const std::chrono::year_month_day day(year, month, std::chrono::day(static_cast<unsigned>(parts[2])));
  const std::optional<double> seconds = Number(text);
  if (!seconds || !day.ok()) return std::nullopt;
  return static_cast<double>(std::chrono::sys_days(day).time_since_epoch().count()) * 86400.0 + parts[3] * 3600.0 +
         parts[4] * 60.0 + *seconds;
}

std::optional<Row> CsvRow(std::string_view line) {
  const std::vector<std::string> cells = absl::StrSplit(std::string(line), ',');
  if (cells.size() < 3) return std::nullopt;
  std::optional<double> time = Number(cells[0]);
  if (!time) time = Instant(cells[0]);
  const std::optional<double> prompt = Number(cells[1]);
  const std::optional<double> output = Number(cells[2]);
  if (!time || !prompt || !output) return std::nullopt;
  return Row{*time, *prompt, *output};
}

std::optional<Row> JsonRow(std::string_view line) {
  const absl::StatusOr<nlohmann::json> object = cli::ParseJsonObject(line);
  if (!object.ok()) return std::nullopt;
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto member = object->find(name);
    if (member == object->end() || !member->is_number()) return std::nullopt;
    return member->get<double>();
  };
  const std::optional<double> ms = number("timestamp");
  const std::optional<double> prompt = number("input_length");
  const std::optional<double> output = number("output_length");
  if (!ms || !prompt || !output) return std::nullopt;
  return Row{*ms / 1e3, *prompt, *output};
}

bool Sane(const Row& row, double previous_seconds) {
  return row.seconds >= previous_seconds && row.prompt_tokens >= 0 && row.output_tokens >= 0 &&
         row.prompt_tokens <= kMostTokens && row.output_tokens <= kMostTokens;
}

}  // namespace

absl::StatusOr<std::vector<Arrival>> ParseTrace(std::string_view text) {
  std::vector<Arrival> arrivals;
  std::optional<double> first_seconds;
  double previous_seconds = 0.0;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const bool json = line.starts_with('{');
    const std::optional<Row> row = json ? JsonRow(line) : CsvRow(line);
    if (!row && !json && number == 1) continue;  // the header
    if (!row || !Sane(*row, first_seconds ? previous_seconds : row->seconds)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, " is no arrival: give time, prompt tokens and output tokens, in order of time"));
    }
    if (!first_seconds) first_seconds = row->seconds;
    previous_seconds = row->seconds;
    // What made no token was asked for one all the same.
    arrivals.push_back({.at = std::chrono::nanoseconds(std::llround((row->seconds - *first_seconds) * 1e9)),
                        .prompt_tokens = std::max(1, static_cast<std::int32_t>(row->prompt_tokens)),
                        .output_tokens = std::max(1, static_cast<std::int32_t>(row->output_tokens))});
  }
  if (arrivals.empty()) return absl::InvalidArgumentError("there is no arrival in it");
  return arrivals;
}

}  // namespace berth::bench
