// Prints the table of all metrics: for the tests of rules, dashboard and page, and as docs/metrics.md.
//
//   metric_table json
//   metric_table docs
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "telemetry/label_rows.h"
#include "telemetry/metric_table.h"

namespace berth::test {
namespace {

const char* TypeName(MetricType type) {
  constexpr const char* kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<std::size_t>(type)];
}

std::vector<std::string> Labels(const MetricSpec& spec) {
  LabelRowSets sets = FixedLabelRows();
  RowsOf(&sets, RowSet::kGrpcMethod).names = {"grpc_method"};
  RowsOf(&sets, RowSet::kGrpcCall) = GrpcCallRows({});
  RowsOf(&sets, RowSet::kBuild).names = {"version", "revision", "backend"};
  RowsOf(&sets, RowSet::kConfig).names = {"hash"};
  RowsOf(&sets, RowSet::kCacheConfig).names = {"block_size", "num_gpu_blocks"};
  std::vector<std::string> labels;
  if (spec.has_model_label()) labels.emplace_back("model_name");
  if (spec.by_class()) labels.emplace_back("class");
  if (spec.by_tenant()) labels.emplace_back("tenant");
  for (const std::string& name : RowsOf(&sets, spec.rows).names) labels.push_back(name);
  return labels;
}

void PrintTable() {
  std::cout << "[";
  const char* comma = "";
  for (const MetricSpec& spec : MetricTable()) {
    std::cout << comma << "\n{\"name\": \"" << spec.name << "\", \"type\": \"" << TypeName(spec.type)
              << "\", \"labels\": [";
    const std::vector<std::string> labels = Labels(spec);
    if (!labels.empty()) std::cout << "\"" << absl::StrJoin(labels, "\", \"") << "\"";
    std::cout << "]}";
    comma = ",";
  }
  std::cout << "\n]\n";
}

void PrintDocs() {
  std::cout
      << "# Metrics\n\n"
         "What `/metrics` on `server.ops` shows. Made from the table in `src/telemetry/metric_table.cc`; a test keeps "
         "the "
         "two equal, and\n`build/cpu/bin/metric_table docs > docs/metrics.md` writes it anew.\n\n"
         "- Every series is there from the start, at 0. Exceptions: a promise that a class does not make has no "
         "threshold; "
         "beyond 100 tenants, and for tenants\n  that the policy file does not list, a series appears when it first "
         "moves.\n"
         "- `class` is `other` for a request that was refused before its class was known; `tenant` is `other` for one "
         "whose tenant was not known, for\n  unlisted tenants beyond 100, and for recomputation, which is charged to "
         "no tenant.\n"
         "- A class that a reload removed disappears once its last request has ended.\n"
         "- A counter of a request's whole life (`kv_block_seconds`, `useful_tokens`) moves when the request ends, so "
         "that "
         "it equals the usage that callers were told.\n\n"
         "| metric | type | labels | unit | what | moved by |\n|---|---|---|---|---|---|\n";
  for (const MetricSpec& spec : MetricTable()) {
    std::cout << "| `" << spec.name << "` | " << TypeName(spec.type) << " | " << absl::StrJoin(Labels(spec), ", ")
              << " | " << spec.unit << " | " << spec.help << " | " << spec.moved_by << " |\n";
  }
}

int Main(std::string_view form) {
  if (form == "json") return PrintTable(), 0;
  if (form == "docs") return PrintDocs(), 0;
  std::cerr << "usage: metric_table json | docs\n";
  return 2;
}

}  // namespace
}  // namespace berth::test

int main(int argc, char** argv) { return berth::test::Main(argc == 2 ? argv[1] : ""); }
