// The log of `berth serve` on standard error: a line an entry, for people or for machines.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/output.h"

namespace berth::cli {

enum class LogLevel { kInfo, kWarning, kError };

enum class LogFormat {
  kText,  // 2026-11-29T22:15:00.123+00:00 info what happened key=value
  kJson,  // {"ts":"2026-11-29T22:15:00.123Z","level":"info","msg":"what happened","key":"value"}
};

// JSON where standard error is no terminal.
LogFormat DefaultLogFormat();

// From now on spdlog's default logger writes such lines.
void StartServerLog(LogFormat format);

// An entry with more than words: `fields` is an object. Any thread, once the log was started.
void LogEvent(LogLevel level, std::string_view message, const Json& fields);

// The lines, without their end; `since_epoch` is calendar time.
std::string JsonLogLine(std::chrono::milliseconds since_epoch, LogLevel level, std::string_view message,
                        const Json& fields);
// What stands behind the time and the level.
std::string TextLogWords(std::string_view message, const Json& fields);

}  // namespace berth::cli
