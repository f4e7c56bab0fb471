#include "cli/flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>

#include "cli/output.h"
#include "config/size.h"

namespace berth::cli {
namespace {

constexpr const char* kModelHelp = "GGUF model file; default: the one that 'make model' fetches";

template <typename T>
std::optional<T> ParseNumber(const std::string& text) {
  T value{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string Plain(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return text.data();
}

std::string Found(const std::string& value) { return ", not \"" + OneLine(value) + "\""; }

}  // namespace

// CLI11 prints "<name>: <what the function threw>".
CLI::Option* AddParsed(CLI::App* app, const std::string& names, const std::string& label, const std::string& help,
                       const std::function<std::string(const std::string&)>& parse) {
  CLI::Option* option = app->add_option_function<std::string>(
      names,
      [parse, names](const std::string& value) {
        const std::string fault = parse(value);
        if (!fault.empty()) throw CLI::ValidationError(names, fault);
      },
      help);
  return option->option_text(label);
}

CLI::Option* AddParsedInt(CLI::App* app, const std::string& names, std::int32_t min, std::int32_t max,
                          const std::string& help, const std::function<void(std::int32_t)>& take) {
  return AddParsed(app, names, "N", help, [=](const std::string& value) -> std::string {
    const std::optional<std::int32_t> number = ParseNumber<std::int32_t>(value);
    if (!number || *number < min || *number > max) {
      const std::string range = max == INT32_MAX ? std::to_string(min) + " or more"
                                                 : "from " + std::to_string(min) + " to " + std::to_string(max);
      return "must be a whole number " + range + Found(value);
    }
    take(*number);
    return "";
  });
}

CLI::Option* AddInt(CLI::App* app, const std::string& names, std::int32_t* target, std::int32_t min, std::int32_t max,
                    const std::string& help) {
  return AddParsedInt(app, names, min, max, help, [target](std::int32_t value) { *target = value; });
}

CLI::Option* AddConfigInt(CLI::App* app, const std::string& names, ConfigFlags* flags,
                          std::int32_t& (*field)(ServerConfig* config), std::int32_t min, std::int32_t max,
                          const std::string& help) {
  return AddParsedInt(app, names, min, max, help,
                      [=](std::int32_t value) { flags->Set([=](ServerConfig* config) { field(config) = value; }); });
}

CLI::Option* AddConfigText(CLI::App* app, const std::string& names, ConfigFlags* flags,
                           std::string& (*field)(ServerConfig* config), const std::string& label,
                           const std::string& help) {
  return AddParsed(app, names, label, help, [=](const std::string& value) -> std::string {
    flags->Set([=](ServerConfig* config) { field(config) = value; });
    return "";
  });
}

CLI::Option* AddFloat(CLI::App* app, const std::string& names, float* target, float min, float max, bool above_min,
                      const std::string& help) {
  return AddParsed(app, names, "X", help, [=](const std::string& value) -> std::string {
    const std::optional<float> number = ParseNumber<float>(value);
    if (!number || !std::isfinite(*number) || *number < min || *number > max || (above_min && *number == min)) {
      return "must be a number " +
             (above_min ? "above " + Plain(min) + " and at most " : "from " + Plain(min) + " to ") + Plain(max) +
             Found(value);
    }
    *target = *number;
    return "";
  });
}

CLI::Option* AddText(CLI::App* app, const std::string& names, std::string* target, const std::string& label,
                     const std::string& help) {
  return app->add_option(names, *target, help)->option_text(label);
}

CLI::Option* AddTexts(CLI::App* app, const std::string& names, std::vector<std::string>* target,
                      const std::string& label, const std::string& help) {
  // Without extra arguments CLI11 neither eats what follows the value nor takes "[a,b]" for a list of its own.
  return app->add_option(names, *target, help)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->option_text(label + " ...");
}

CLI::Option* AddConfigBytes(CLI::App* app, const std::string& names, ConfigFlags* flags,
                            std::int64_t& (*field)(ServerConfig* config), const std::string& help) {
  return AddParsed(app, names, "SIZE", help, [=](const std::string& value) -> std::string {
    const absl::StatusOr<std::int64_t> bytes = ParseByteSize(value);
    if (!bytes.ok()) return std::string(bytes.status().message());
    flags->Set([=, value = *bytes](ServerConfig* config) { field(config) = value; });
    return "";
  });
}

CLI::Option* AddJson(CLI::App* app, bool* target, const std::string& help) {
  return app->add_flag("--json", *target, help)->group("Output");
}

void AddModelFlag(CLI::App* app, std::string* path) {
  AddText(app, "--model", path, "PATH", kModelHelp)->group("Model");
}

void AddEngineFlags(CLI::App* app, ConfigFlags* flags, const ServerConfig& defaults) {
  AddConfigText(
      app, "--model", flags, [](ServerConfig* c) -> std::string& { return c->model.path; }, "PATH", kModelHelp)
      ->group("Model");
  AddConfigInt(
      app, "--max-context", flags, [](ServerConfig* c) -> std::int32_t& { return c->model.max_context_tokens; }, 1,
      INT32_MAX,
      "most tokens of prompt and output together; default: what the model was trained for; answers beyond that "
      "length get worse")
      ->group("Model");
  AddConfigInt(
      app, "--max-sequences", flags,
      [](ServerConfig* c) -> std::int32_t& { return c->scheduler.max_running_sequences; }, 1,
      defaults.scheduler.max_batched_tokens,
      "sequences that run at once; default " + std::to_string(defaults.scheduler.max_running_sequences))
      ->group("Engine");
  AddParsed(app, "--backend", "auto|cpu|cuda", "what runs the model; default auto: a CUDA device where there is one",
            [flags](const std::string& value) -> std::string {
              constexpr std::array<std::string_view, 3> kWords = {"auto", "cpu", "cuda"};
              const auto found = std::find(kWords.begin(), kWords.end(), value);
              if (found == kWords.end()) return "must be auto, cpu or cuda" + Found(value);
              flags->Set([choice = static_cast<BackendChoice>(found - kWords.begin())](ServerConfig* c) {
                c->compute.backend = choice;
              });
              return "";
            })
      ->group("Engine");
  AddConfigInt(
      app, "--device", flags, [](ServerConfig* c) -> std::int32_t& { return c->compute.device; }, 0, 63,
      "which CUDA device; 'berth devices' lists them")
      ->group("Engine");
  AddConfigInt(
      app, "--threads", flags, [](ServerConfig* c) -> std::int32_t& { return c->compute.threads; }, 1, 1024,
      "CPU threads; default: the CPUs this process may use")
      ->group("Engine");
  AddParsed(app, "--compute", "default|float32", "float32: activations and KV in float32, slow and exact",
            [flags](const std::string& value) -> std::string {
              if (value != "default" && value != "float32") return "must be default or float32" + Found(value);
              flags->Set([float32 = value == "float32"](ServerConfig* c) { c->compute.float32 = float32; });
              return "";
            })
      ->group("Engine");
  const std::optional<std::int32_t>& contexts = defaults.kv_cache.auto_max_contexts;
  AddParsed(
      app, "--kv-memory", "SIZE|auto",
      std::string("memory for the KV cache, with a unit (2GiB); auto (or 0): ") +
          (contexts ? "half of what is free once the weights are loaded, at most what the request needs"
                    : "half of what is free once the weights are loaded, at most what 16 full contexts need; on a CUDA "
                      "device 90% of its memory, less the weights"),
      [flags](const std::string& value) -> std::string {
        const absl::StatusOr<std::int64_t> bytes = ParseByteSize(value == "auto" ? "0" : value);
        if (!bytes.ok()) return std::string(bytes.status().message()) + "; or give auto";
        std::optional<Quantity> memory;
        if (*bytes > 0) memory = Quantity{QuantityUnit::kBytes, *bytes};
        flags->Set([memory](ServerConfig* c) { c->kv_cache.memory = memory; });
        return "";
      })
      ->group("Engine");
  AddParsed(app, "--kv-dtype", "bf16|int8|float32",
            "how keys and values are stored; default: bf16, float32 with --compute float32",
            [flags](const std::string& value) -> std::string {
              for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kInt8, KvDtype::kFloat32}) {
                if (value != KvDtypeName(dtype)) continue;
                flags->Set([dtype](ServerConfig* c) { c->kv_cache.dtype = dtype; });
                return "";
              }
              return "must be bf16, int8 or float32" + Found(value);
            })
      ->group("Engine");
  AddParsed(
      app, "--block-tokens", "N",
      "tokens of one KV block, a power of two up to 256; default " + std::to_string(defaults.kv_cache.block_tokens),
      [flags](const std::string& value) -> std::string {
        const std::optional<std::int32_t> number = ParseNumber<std::int32_t>(value);
        if (!number || *number < 1 || *number > 256 || (*number & (*number - 1)) != 0) {
          return "must be a power of two from 1 to 256" + Found(value);
        }
        flags->Set([tokens = *number](ServerConfig* c) { c->kv_cache.block_tokens = tokens; });
        return "";
      })
      ->group("Engine");
}

}  // namespace berth::cli
