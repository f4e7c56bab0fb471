#include "load_report.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/output.h"

namespace berth::bench {
namespace {

using Json = nlohmann::ordered_json;

double Rounded(double value) { return std::round(value * 1000.0) / 1000.0; }

Json Times(const Histogram& times) {
  return {{"count", times.count()},
          {"mean", Rounded(times.MeanMs())},
          {"p50", Rounded(times.QuantileMs(0.5))},
          {"p90", Rounded(times.QuantileMs(0.9))},
          {"p99", Rounded(times.QuantileMs(0.99))},
          {"p999", Rounded(times.QuantileMs(0.999))},
          {"max", Rounded(times.MaxMs())}};
}

Json Arrivals(const LoadOptions& options) {
  if (options.streams > 0) return {{"loop", "closed"}, {"streams", options.streams}};
  if (options.trace.empty()) return {{"loop", "open"}, {"requests_per_second", options.rate}};
  return {{"loop", "open"}, {"trace_requests", options.trace.size()}, {"speed", options.speed}};
}

Json ClassReport(const Tally& tally, const std::string& name, double seconds) {
  return {{"class", name},
          {"due", tally.due.load()},
          {"served", tally.served.load()},
          {"refused", Total(tally.refused())},
          {"failed", Total(tally.failed())},
          {"cancelled", tally.cancelled.load()},
          {"unfinished", tally.unfinished.load()},
          {"not_sent", tally.not_sent.load()},
          {"goodput_per_second", Rounded(static_cast<double>(tally.met_slo.load()) / seconds)},
          {"tokens_per_second", Rounded(static_cast<double>(tally.tokens.load()) / seconds)},
          {"messages_per_second", Rounded(static_cast<double>(tally.messages.load()) / seconds)},
          {"refusals_per_second", Rounded(static_cast<double>(Total(tally.refused())) / seconds)},
          {"ttft_ms", Times(tally.first_token)},
          {"itl_ms", Times(tally.between_messages)},
          {"per_token_ms", Times(tally.per_token)},
          {"e2e_ms", Times(tally.end_to_end)},
          {"refusals", tally.refused()},
          {"failures", tally.failed()}};
}

std::string Whole(const Json& value) { return cli::GroupDigits(value.get<std::int64_t>()); }
std::string PerSecond(const Json& value) {
  const auto number = value.get<double>();
  return number < 100.0 ? cli::Fixed(number, 1) : cli::GroupDigits(std::llround(number));
}

std::string CountsText(const Json& report) {
  cli::ColumnTable table({"class", "due", "served", "refused", "failed", "cancelled", "unfinished", "not sent",
                          "goodput/s", "refusals/s", "tokens/s", "messages/s"});
  for (const Json& c : report["classes"]) {
    table.Add({c["class"].get<std::string>(), Whole(c["due"]), Whole(c["served"]), Whole(c["refused"]),
               Whole(c["failed"]), Whole(c["cancelled"]), Whole(c["unfinished"]), Whole(c["not_sent"]),
               PerSecond(c["goodput_per_second"]), PerSecond(c["refusals_per_second"]),
               PerSecond(c["tokens_per_second"]), PerSecond(c["messages_per_second"])});
  }
  return table.Text();
}

std::string TimesText(const Json& report) {
  cli::ColumnTable table({"class", "milliseconds", "count", "mean", "p50", "p90", "p99", "p99.9", "max"});
  const std::vector<std::pair<const char*, const char*>> kinds = {{"ttft_ms", "to the first token"},
                                                                  {"itl_ms", "between messages"},
                                                                  {"per_token_ms", "per token, of a request"},
                                                                  {"e2e_ms", "to the end"}};
  for (const Json& c : report["classes"]) {
    for (const auto& [key, words] : kinds) {
      const Json& times = c[key];
      if (times["count"] == 0) continue;
      std::vector<std::string> row = {c["class"].get<std::string>(), words, Whole(times["count"])};
      for (const char* figure : {"mean", "p50", "p90", "p99", "p999", "max"}) {
        row.push_back(cli::Fixed(times[figure].get<double>(), 2));
      }
      table.Add(std::move(row));
    }
  }
  return table.Text();
}

// Empty where every request was served.
std::string ReasonsText(const Json& report) {
  cli::ColumnTable table({"class", "ended", "reason", "requests"});
  bool any = false;
  for (const Json& c : report["classes"]) {
    for (const auto& [key, words] : {std::pair("refusals", "refused"), std::pair("failures", "failed")}) {
      for (const auto& [reason, count] : c[key].items()) {
        table.Add({c["class"].get<std::string>(), words, reason, Whole(count)});
        any = true;
      }
    }
  }
  return any ? "\n" + table.Text() : "";
}

}  // namespace

Json ReportJson(const LoadOptions& options, const WorkloadOptions& workload, const std::deque<Tally>& tallies,
                const LoadResult& result) {
  const double seconds = std::max(1e-9, ToSeconds(result.measured));
  Json report = {{"server", options.server}, {"connections", options.connections}};
  report.update(Arrivals(options));
  report["prompt_tokens"] = workload.prompt_tokens;
  report["output_tokens"] = workload.output_tokens;
  report["measured_seconds"] = Rounded(seconds);
  report["client_cores"] = Rounded(result.client_cpu_seconds / seconds);
  if (options.server_pid != 0) {
    report["server_cores"] = Rounded(result.server_cpu_seconds / seconds);
    report["server_peak_mib"] = Rounded(static_cast<double>(result.server_peak_bytes) / (1 << 20));
  }
  report["classes"] = Json::array();
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    report["classes"].push_back(ClassReport(tallies[i], workload.mix[i].name, seconds));
  }
  return report;
}

std::string ReportText(const Json& report) {
  std::string text = absl::StrCat(report["server"].get<std::string>(), ", ", Whole(report["connections"]),
                                  report["connections"] == 1 ? " connection, " : " connections, ");
  if (report["loop"] == "closed") {
    absl::StrAppend(&text, "closed loop of ", Whole(report["streams"]), " streams");
  } else if (report.contains("trace_requests")) {
    absl::StrAppend(&text, "a trace of ", Whole(report["trace_requests"]), " requests");
  } else {
    absl::StrAppend(&text, PerSecond(report["requests_per_second"]), " requests/s (Poisson)");
  }
  absl::StrAppend(&text, "; measured for ", cli::Fixed(report["measured_seconds"].get<double>(), 1),
                  " s; cores: client ", cli::Fixed(report["client_cores"].get<double>(), 2));
  if (report.contains("server_cores")) {
    absl::StrAppend(&text, ", server ", cli::Fixed(report["server_cores"].get<double>(), 2), " (peak ",
                    cli::Fixed(report["server_peak_mib"].get<double>(), 0), " MiB)");
  }
  return absl::StrCat(text, "\n\n", CountsText(report), "\n", TimesText(report), ReasonsText(report));
}

}  // namespace berth::bench
