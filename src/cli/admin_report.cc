#include "cli/admin_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "cli/proto_json.h"
#include "config/policy_diff.h"
#include "config/size.h"

namespace berth::cli {
namespace {

double Seconds(const google::protobuf::Duration& d) { return static_cast<double>(d.seconds()) + d.nanos() / 1e9; }

const char* StateName(v1::ServerState state) {
  switch (state) {
    case v1::SERVER_STATE_LOADING:
      return "LOADING";
    case v1::SERVER_STATE_SERVING:
      return "SERVING";
    case v1::SERVER_STATE_DRAINING:
      return "DRAINING";
    case v1::SERVER_STATE_BACKEND_FAULT:
      return "BACKEND_FAULT";
    case v1::SERVER_STATE_NO_PROGRESS:
      return "NO_PROGRESS";
    default:
      return "?";
  }
}

const char* StopName(v1::ClassStopState stop) {
  switch (stop) {
    case v1::CLASS_STOP_STATE_HOLD:
      return "hold";
    case v1::CLASS_STOP_STATE_DRAIN:
      return "drain";
    default:
      return "-";
  }
}

const char* StateName(v1::RequestState state) {
  switch (state) {
    case v1::REQUEST_STATE_QUEUED:
      return "queued";
    case v1::REQUEST_STATE_PREFILL:
      return "prefill";
    case v1::REQUEST_STATE_DECODE:
      return "decode";
    case v1::REQUEST_STATE_PREEMPTED:
      return "preempted";
    default:
      return "?";
  }
}

std::string Percent(double share) { return Fixed(100.0 * share, 0) + "%"; }

// "ttft 99.5% of 99%"; a promise nobody has tested yet is "-".
std::string SloCell(const v1::ClassStatus& c) {
  std::string cell;
  for (const v1::SloStatus& slo : c.slos()) {
    if (!cell.empty()) cell += ", ";
    const std::int64_t all = slo.met() + slo.missed();
    cell += slo.slo() + " ";
    cell += all == 0 ? "-" : Fixed(100.0 * static_cast<double>(slo.met()) / static_cast<double>(all), 1) + "%";
    cell += " of " +
            Fixed(100.0 * slo.objective(), slo.objective() * 100.0 == std::floor(slo.objective() * 100.0) ? 0 : 1) +
            "%";
  }
  return cell.empty() ? "-" : cell;
}

ColumnTable ClassTable(const v1::ServerStatus& status) {
  ColumnTable table({"class", "prio", "stop", "running", "queued", "of", "parked", "oldest", "used", "guarantee",
                     "ceiling", "borrowed", "debt", "kv", "slots", "compute", "slo"});
  for (const v1::ClassStatus& c : status.classes()) {
    table.Add({c.name(), std::to_string(c.priority()), StopName(c.stop()), GroupDigits(c.running_requests()),
               GroupDigits(c.queued_requests()), GroupDigits(c.max_queued_requests()),
               GroupDigits(c.preempted_requests()), c.has_oldest_wait() ? ShortTime(Seconds(c.oldest_wait())) : "-",
               GroupDigits(c.used_blocks()), GroupDigits(c.guaranteed_blocks()), GroupDigits(c.ceiling_blocks()),
               GroupDigits(c.borrowed_blocks()), GroupDigits(c.debt_blocks()), Percent(c.kv_pressure()),
               Percent(c.slots_pressure()), Percent(c.compute_pressure()), SloCell(c)});
  }
  return table;
}

}  // namespace

std::string ShortTime(double seconds) {
  if (seconds < 10.0) return Fixed(std::max(0.0, seconds), 1) + " s";
  const auto whole = static_cast<std::int64_t>(seconds);
  constexpr std::pair<std::int64_t, const char*> kUnits[] = {{86'400, " d"}, {3'600, " h"}, {60, " min"}};
  for (std::size_t i = 0; i < std::size(kUnits); ++i) {
    const auto& [length, name] = kUnits[i];
    if (whole < length) continue;
    const std::int64_t below = i + 1 < std::size(kUnits) ? kUnits[i + 1].first : 1;
    const char* below_name = i + 1 < std::size(kUnits) ? kUnits[i + 1].second : " s";
    return std::to_string(whole / length) + name + " " + std::to_string(whole % length / below) + below_name;
  }
  return std::to_string(whole) + " s";
}

std::string StatusText(const v1::ServerStatus& status, std::size_t most_columns) {
  std::string text =
      std::string(StateName(status.state())) + (status.why().empty() ? "" : ": " + OneLine(status.why())) + "\n";
  FactTable facts;
  facts.Add("model", status.model() + " on " + status.backend() + ", berth " + status.version() + ", up " +
                         ShortTime(Seconds(status.uptime())));
  facts.Add("policy", status.policy_sha256().empty() ? "built in" : "sha256 " + status.policy_sha256());
  const std::int64_t pool_blocks = status.free_blocks() + status.cached_blocks() + status.held_blocks();
  facts.Add("pool", GroupDigits(pool_blocks) + " blocks of " + std::to_string(status.block_tokens()) + " tokens (" +
                        FormatBytes(status.kv_bytes()) + "): " + GroupDigits(status.held_blocks()) + " held, " +
                        GroupDigits(status.unspent_blocks()) + " reserved and unspent, " +
                        GroupDigits(status.cached_blocks()) + " cached, " + GroupDigits(status.free_blocks()) +
                        " free");
  facts.Add("requests", GroupDigits(status.running_requests()) + " running, " + GroupDigits(status.queued_requests()) +
                            " queued, " + GroupDigits(status.preempted_requests()) + " parked; " +
                            GroupDigits(status.used_slots()) + " of " + GroupDigits(status.max_slots()) + " slots");
  facts.Add("pressure", Percent(status.pressure()));
  return text + facts.Text() + "\n" + ClassTable(status).Text(most_columns);
}

std::string RequestsText(const v1::ListRequestsResponse& list) {
  if (list.requests().empty() && list.left_out() == 0) return "no requests\n";
  ColumnTable table(
      {"request", "tenant", "class", "state", "age", "prompt", "output", "reserved", "held", "preempted", "time left"});
  for (const v1::LiveRequest& r : list.requests()) {
    table.Add({OneLine(r.request_id()), r.tenant(), r.service_class(), StateName(r.state()),
               ShortTime(Seconds(r.age())), GroupDigits(r.prompt_tokens()), GroupDigits(r.output_tokens()),
               GroupDigits(r.reserved_blocks()), GroupDigits(r.held_blocks()), GroupDigits(r.preemptions()),
               r.has_time_left() ? ShortTime(Seconds(r.time_left())) : "-"});
  }
  std::string text = table.Text();
  if (list.left_out() > 0) text += "  and " + GroupDigits(list.left_out()) + " more\n";
  return text;
}

Outcome ReportReload(const v1::ReloadPolicyResponse& response, const std::string& name, bool strict, bool json,
                     Output& out) {
  const auto named = [&](const std::string& line) {
    return line.starts_with("policy:") && !name.empty() ? name + line.substr(6) : line;
  };
  const auto warnings = std::count_if(response.findings().begin(), response.findings().end(),
                                      [](const std::string& f) { return f.find(": warning: ") != std::string::npos; });
  for (const std::string& finding : response.findings()) std::fprintf(stderr, "%s\n", OneLine(named(finding)).c_str());
  if (json) {
    out.WriteJson(ProtoJson(response));
  } else if (response.applied()) {
    for (const v1::PolicyChange& change : response.changes()) {
      out.WriteLine(OneLine(FormatChange({change.key(), change.before(), change.after(), Effect::kLive})));
    }
    for (const v1::ClassDebt& debt : response.debts()) {
      out.WriteLine("class " + debt.service_class() + ": " + GroupDigits(debt.debt_blocks()) +
                    " blocks in debt now, until requests end");
    }
    const char* verb = response.dry_run() ? "would change" : "changed";
    const std::string keys = GroupDigits(response.changes_size()) + (response.changes_size() == 1 ? " key " : " keys ");
    out.WriteLine((response.changes().empty() ? "nothing " : keys) + verb);
    out.WriteLine("sha256 " + response.hash());
  }
  if (!response.applied()) return UsageError(named(response.error()));
  if (strict && warnings > 0) return UsageError((name.empty() ? std::string("the policy") : name) + ": warnings");
  return {};
}

}  // namespace berth::cli
