#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/machine.h"
#include "cli/backend_plan.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/runtime.h"
#include "config/size.h"
#include "kernels/cpu/cpu_level.h"

namespace berth::cli {
namespace {

struct DevicesOptions {
  ServerConfig config;
  ConfigFlags flags;
  bool json = false;
};

// What fits beside a model on one device.
struct Fit {
  std::int64_t weight_bytes = 0;
  std::int64_t workspace_bytes = 0;
  PoolPlan pool;
  std::int64_t contexts = 0;
  std::string fault;  // in place of the rest
};

struct Row {
  std::string id;  // "cpu", "cuda:0"
  std::string what;
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;  // 0: not told
  std::string unusable;
  std::optional<Fit> fit;
};

std::vector<Row> CollectRows(const std::vector<CudaDevice>& devices) {
  const int threads = AllowedCpus();
  std::vector<Row> rows = {{.id = "cpu",
                            .what = std::string(cpu::CpuLevelName(cpu::DetectCpuLevel())) + ", " +
                                    std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
                            .free_bytes = AvailableMemoryBytes(),
                            .total_bytes = 0,
                            .unusable = "",
                            .fit = std::nullopt}};
  for (const CudaDevice& device : devices) {
    rows.push_back({.id = "cuda:" + std::to_string(device.index),
                    .what = OneLine(device.name) + ", compute capability " + std::to_string(device.compute_major) +
                            "." + std::to_string(device.compute_minor) + ", " + std::to_string(device.multiprocessors) +
                            " multiprocessors",
                    .free_bytes = device.free_bytes,
                    .total_bytes = device.total_bytes,
                    .unusable = device.unusable,
                    .fit = std::nullopt});
  }
  return rows;
}

Fit NoFit(const absl::Status& status) {
  Fit fit;
  fit.fault = std::string(status.message());
  return fit;
}

Fit FindFit(const ServerConfig& config, const Model& model, const ChosenBackend& backend) {
  Fit fit;
  const absl::StatusOr<PoolMemory> memory = FindPoolMemory(config, model, backend);
  if (!memory.ok()) return NoFit(memory.status());
  fit.weight_bytes = memory->weight_bytes;
  fit.workspace_bytes = memory->workspace_bytes;
  const absl::StatusOr<PoolPlan> pool = PlanPool(config, model.config.context_tokens, *memory);
  if (!pool.ok()) return NoFit(pool.status());
  fit.pool = *pool;
  fit.contexts = std::int64_t{pool->shape.num_blocks} * pool->shape.block_tokens / model.config.context_tokens;
  return fit;
}

Json FitJson(const Fit& fit) {
  if (!fit.fault.empty()) return {{"fault", fit.fault}};
  return {{"weight_bytes", fit.weight_bytes},
          {"workspace_bytes", fit.workspace_bytes},
          {"kv_bytes", fit.pool.bytes},
          {"kv_blocks", fit.pool.shape.num_blocks},
          {"block_tokens", fit.pool.shape.block_tokens},
          {"full_contexts", fit.contexts}};
}

Json ToJson(const std::vector<Row>& rows, const std::string& chosen, const std::string& note) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json json = {{"id", row.id}, {"description", row.what}, {"free_bytes", row.free_bytes}};
    if (row.total_bytes > 0) json["total_bytes"] = row.total_bytes;
    if (!row.unusable.empty()) json["unusable"] = row.unusable;
    if (row.fit) json["fit"] = FitJson(*row.fit);
    list.push_back(std::move(json));
  }
  Json json = {{"built_with_cuda", HasCudaBackend()}, {"devices", std::move(list)}, {"chosen", chosen}};
  if (!note.empty()) json["note"] = note;
  return json;
}

std::string MemoryCell(const Row& row) {
  return FormatBytes(row.free_bytes) + (row.total_bytes > 0 ? " of " + FormatBytes(row.total_bytes) : "");
}

std::string ToText(const std::vector<Row>& rows, const std::string& chosen, const std::string& note) {
  ColumnTable table({"DEVICE", "FREE", "WHAT"});
  for (const Row& row : rows) {
    table.Add({row.id, MemoryCell(row), row.what + (row.unusable.empty() ? "" : "; not usable: " + row.unusable)});
  }
  std::string text = table.Text();
  if (rows.back().fit) {
    ColumnTable fits({"DEVICE", "WEIGHTS", "WORKSPACE", "KV CACHE", "BLOCKS", "FULL CONTEXTS"});
    std::string faults;
    for (const Row& row : rows) {
      if (!row.fit) continue;
      const Fit& fit = *row.fit;
      if (!fit.fault.empty()) {
        faults += row.id + ": " + fit.fault + "\n";
        continue;
      }
      fits.Add({row.id, FormatBytes(fit.weight_bytes), fit.workspace_bytes > 0 ? FormatBytes(fit.workspace_bytes) : "-",
                FormatBytes(fit.pool.bytes),
                GroupDigits(fit.pool.shape.num_blocks) + " of " + std::to_string(fit.pool.shape.block_tokens),
                GroupDigits(fit.contexts)});
    }
    text += "\n" + fits.Text() + faults;
  }
  text += "\n'berth serve' with these flags takes " + chosen + (note.empty() ? "" : ": " + note) + "\n";
  if (!HasCudaBackend()) text += "This berth was built without CUDA; -DBERTH_CUDA=ON builds it in.\n";
  return text;
}

Outcome Devices(const DevicesOptions& options, Output& out) {
  ServerConfig config = options.config;
  options.flags.Apply(&config);
  const absl::StatusOr<std::vector<CudaDevice>> devices = ListCudaDevices();
  if (!devices.ok()) return FromStatus(devices.status());
  std::vector<Row> rows = CollectRows(*devices);
  if (!config.model.path.empty()) {
    const absl::StatusOr<std::unique_ptr<Model>> model = OpenModel(config.model);
    if (!model.ok()) return FromStatus(model.status());
    if (config.model.max_context_tokens > 0) (*model)->config.context_tokens = config.model.max_context_tokens;
    rows.front().fit = FindFit(config, **model, {});
    for (std::size_t i = 0; i < devices->size(); ++i) {
      if ((*devices)[i].unusable.empty()) rows[i + 1].fit = FindFit(config, **model, {(*devices)[i], ""});
    }
  }
  const absl::StatusOr<ChosenBackend> chosen = ChooseBackend(config);
  const std::string name = !chosen.ok()                 ? "nothing"
                           : chosen->device.has_value() ? "cuda:" + std::to_string(chosen->device->index)
                                                        : "cpu";
  const std::string note = chosen.ok() ? chosen->note : std::string(chosen.status().message());
  if (options.json) {
    out.WriteJson(ToJson(rows, name, note));
  } else {
    out.Write(ToText(rows, name, note));
  }
  return {};
}

}  // namespace

void AddDevicesCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* app = root->add_subcommand("devices", "What can run a model here, and what fits");
  AddEngineFlags(app, &options->flags, options->config);
  AddJson(app, &options->json, "one object: devices, what fits on each, the chosen one");
  app->footer(
      "With --model it counts what each device would hold: the weights, the workspace of a step, and the KV cache "
      "that\n"
      "the other flags ask for.\n\n"
      "Example:\n"
      "  berth devices --model model.gguf --kv-memory auto");
  app->callback([=] { invocation->run = [=](Output& out) { return Devices(*options, out); }; });
}

}  // namespace berth::cli
