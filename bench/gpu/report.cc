#include "report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace berth::bench {
namespace {

using nlohmann::json;

const char* NameOf(Status status) {
  switch (status) {
    case Status::kMeasured:
      return "measured";
    case Status::kSkipped:
      return "skipped";
    case Status::kFailed:
      return "failed";
  }
  return "?";
}

std::string Number(double value, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

Report::Report(const std::vector<Case>& cases) : cases_(cases) {
  for (const Case& which : cases) name_width_ = std::max(name_width_, static_cast<int>(which.name.size()));
}

void Report::PrintHeader() const {
  std::printf("%-*s %12s %8s %10s %10s %8s  %s\n", name_width_, "case", "median us", "spread%", "GB/s", "TFLOP/s",
              "ceiling%", "of");
}

Report::Least Report::LeastTime(const Cost& cost) const {
  Least least;
  if (cost.bytes > 0 && bytes_per_second_ > 0) least = {cost.bytes / bytes_per_second_, "copy"};
  if (cost.flops > 0 && flops_per_second_ > 0 && cost.flops / flops_per_second_ > least.seconds) {
    least = {cost.flops / flops_per_second_, "matmul"};
  }
  return least;
}

void Report::Add(const Outcome& outcome) {
  const Case& which = cases_[outcomes_.size()];
  outcomes_.push_back(outcome);
  if (outcome.status != Status::kMeasured) {
    std::printf("%-*s %s: %s\n", name_width_, which.name.c_str(), NameOf(outcome.status), outcome.note.c_str());
    std::fflush(stdout);
    return;
  }
  const Timing& timing = outcome.timing;
  const double seconds = timing.median;
  if (which.name == kCopyCeiling) bytes_per_second_ = which.cost.bytes / seconds;
  if (which.name.starts_with(kMatmulCeiling))
    flops_per_second_ = std::max(flops_per_second_, which.cost.flops / seconds);
  const Least least = LeastTime(which.cost);
  std::printf("%-*s %12s %8s %10s %10s %8s  %s\n", name_width_, which.name.c_str(), Number(seconds * 1e6, 2).c_str(),
              Number(100 * (timing.p90 - timing.p10) / seconds, 1).c_str(),
              which.cost.bytes > 0 ? Number(which.cost.bytes / seconds / 1e9, 1).c_str() : "-",
              which.cost.flops > 0 ? Number(which.cost.flops / seconds / 1e12, 2).c_str() : "-",
              least.seconds > 0 ? Number(100 * least.seconds / seconds, 1).c_str() : "-", least.bound);
  std::fflush(stdout);
}

bool Report::AnyFailed() const {
  return std::any_of(outcomes_.begin(), outcomes_.end(),
                     [](const Outcome& outcome) { return outcome.status == Status::kFailed; });
}

std::string Report::Json(const DeviceFacts& facts, const std::string& note) const {
  json cases = json::array();
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    const Outcome& outcome = outcomes_[i];
    json row = {{"name", cases_[i].name}, {"status", NameOf(outcome.status)}};
    if (outcome.status == Status::kMeasured) {
      const Timing& timing = outcome.timing;
      const Cost& cost = cases_[i].cost;
      row["repetitions"] = timing.repetitions;
      row["seconds"] = {{"median", timing.median},
                        {"p10", timing.p10},
                        {"p90", timing.p90},
                        {"lowest", timing.lowest},
                        {"highest", timing.highest}};
      if (cost.bytes > 0) row["bytes_per_second"] = cost.bytes / timing.median;
      if (cost.flops > 0) row["flops_per_second"] = cost.flops / timing.median;
      const Least least = LeastTime(cost);
      if (least.seconds > 0) row["of_ceiling"] = {{"share", least.seconds / timing.median}, {"bound", least.bound}};
    } else {
      row["note"] = outcome.note;
    }
    cases.push_back(std::move(row));
  }
  const json report = {
      {"device",
       {{"name", facts.name},
        {"compute_capability", std::to_string(facts.compute_major) + "." + std::to_string(facts.compute_minor)},
        {"multiprocessors", facts.multiprocessors},
        {"memory_bytes", facts.memory_bytes},
        {"l2_bytes", facts.l2_bytes},
        {"driver_version", facts.driver_version},
        {"runtime_version", facts.runtime_version}}},
      {"note", note},
      {"ceilings", {{"bytes_per_second", bytes_per_second_}, {"flops_per_second", flops_per_second_}}},
      {"cases", std::move(cases)}};
  return report.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace berth::bench
