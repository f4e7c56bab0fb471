// Flags that say in one line what is wrong with a value. CLI11's own checks and conversions speak its language, not
// ours.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "config/server_config.h"

namespace berth::cli {

// A whole number from `min` to `max`.
CLI::Option* AddInt(CLI::App* app, const std::string& names, std::int32_t* target, std::int32_t min, std::int32_t max,
                    const std::string& help);
// A finite number from `min` to `max`; `above_min`: min itself is outside.
CLI::Option* AddFloat(CLI::App* app, const std::string& names, float* target, float min, float max, bool above_min,
                      const std::string& help);
// Any text; `label` stands for the value in the help.
CLI::Option* AddText(CLI::App* app, const std::string& names, std::string* target, const std::string& label,
                     const std::string& help);
// May be given several times, one value each.
CLI::Option* AddTexts(CLI::App* app, const std::string& names, std::vector<std::string>* target,
                      const std::string& label, const std::string& help);
// A size in bytes with a unit, or 0.
CLI::Option* AddBytes(CLI::App* app, const std::string& names, std::int64_t* target, const std::string& help);
// "--json".
CLI::Option* AddJson(CLI::App* app, bool* target, const std::string& help);

// --model; the file it names, or the default model's, is looked up by ResolveModelPath.
void AddModelFlag(CLI::App* app, ServerConfig* config);
// --max-sequences, --threads, --compute, --kv-memory, --kv-dtype, --block-tokens, --max-context.
void AddEngineFlags(CLI::App* app, ServerConfig* config);

}  // namespace berth::cli
