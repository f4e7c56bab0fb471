// Flags that say in one line what is wrong with a value. CLI11's own checks and conversions speak its language, not
// ours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "config/server_config.h"

namespace berth::cli {

// A text that `parse` takes, or says in a few words what is wrong with it; `label` stands for the value in the help.
CLI::Option* AddParsed(CLI::App* app, const std::string& names, const std::string& label, const std::string& help,
                       const std::function<std::string(const std::string& value)>& parse);
// A whole number from `min` to `max`.
CLI::Option* AddInt(CLI::App* app, const std::string& names, std::int32_t* target, std::int32_t min, std::int32_t max,
                    const std::string& help);
// The same, handed to `take`.
CLI::Option* AddParsedInt(CLI::App* app, const std::string& names, std::int32_t min, std::int32_t max,
                          const std::string& help, const std::function<void(std::int32_t)>& take);
// A finite number from `min` to `max`; `above_min`: min itself is outside.
CLI::Option* AddFloat(CLI::App* app, const std::string& names, float* target, float min, float max, bool above_min,
                      const std::string& help);
// Any text; `label` stands for the value in the help.
CLI::Option* AddText(CLI::App* app, const std::string& names, std::string* target, const std::string& label,
                     const std::string& help);
// May be given several times, one value each.
CLI::Option* AddTexts(CLI::App* app, const std::string& names, std::vector<std::string>* target,
                      const std::string& label, const std::string& help);
// "--json".
CLI::Option* AddJson(CLI::App* app, bool* target, const std::string& help);

// What flags say about a configuration. Kept as edits, so that it can be laid over a policy file, and over each version
// of it that a reload reads.
class ConfigFlags {
 public:
  void Set(std::function<void(ServerConfig*)> edit) { edits_.push_back(std::move(edit)); }
  void Apply(ServerConfig* config) const {
    for (const auto& edit : edits_) edit(config);
  }

 private:
  std::vector<std::function<void(ServerConfig*)>> edits_;
};

// A whole number, a size or a text that sets a field of the configuration.
CLI::Option* AddConfigInt(CLI::App* app, const std::string& names, ConfigFlags* flags,
                          std::int32_t& (*field)(ServerConfig* config), std::int32_t min, std::int32_t max,
                          const std::string& help);
CLI::Option* AddConfigBytes(CLI::App* app, const std::string& names, ConfigFlags* flags,
                            std::int64_t& (*field)(ServerConfig* config), const std::string& help);
CLI::Option* AddConfigText(CLI::App* app, const std::string& names, ConfigFlags* flags,
                           std::string& (*field)(ServerConfig* config), const std::string& label,
                           const std::string& help);

// --model for commands that read the file alone; the file it names, or the default model's, is looked up by
// ResolveModelPath.
void AddModelFlag(CLI::App* app, std::string* path);
// --model, --backend, --device, --threads, --compute, --kv-memory, --kv-dtype, --block-tokens, --max-context,
// --max-sequences. `defaults`: for the help.
void AddEngineFlags(CLI::App* app, ConfigFlags* flags, const ServerConfig& defaults);

}  // namespace berth::cli
