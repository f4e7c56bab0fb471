#include "cli/server_log.h"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <utility>

#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace berth::cli {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v";

LogFormat log_format = LogFormat::kText;

// Of the entry that this thread is writing: spdlog's own entries are words alone.
thread_local const Json* entry_fields = nullptr;

const char* LevelName(LogLevel level) {
  constexpr const char* kNames[] = {"info", "warn", "error"};
  return kNames[static_cast<std::size_t>(level)];
}

LogLevel LevelOf(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return LogLevel::kError;
  return level == spdlog::level::warn ? LogLevel::kWarning : LogLevel::kInfo;
}

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<std::size_t>(level)];
}

std::string UtcTime(std::chrono::milliseconds since_epoch) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t time = seconds.count();
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  const std::string milliseconds = std::to_string(1000 + (since_epoch - seconds).count());
  return std::string(text, size) + "." + milliseconds.substr(1) + "Z";
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto time = std::chrono::floor<std::chrono::milliseconds>(message.time.time_since_epoch());
    const std::string_view words(message.payload.data(), message.payload.size());
    const std::string line =
        JsonLogLine(time, LevelOf(message.level), words, entry_fields != nullptr ? *entry_fields : Json::object());
    out.append(line.data(), line.data() + line.size());
    out.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

LogFormat DefaultLogFormat() { return isatty(STDERR_FILENO) != 0 ? LogFormat::kText : LogFormat::kJson; }

void StartServerLog(LogFormat format) {
  log_format = format;
  auto logger = std::make_shared<spdlog::logger>("berth", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  spdlog::set_default_logger(logger);
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern(kTextPattern);
  }
}

void LogEvent(LogLevel level, std::string_view message, const Json& fields) {
  if (log_format == LogFormat::kText) {
    spdlog::log(SpdlogLevel(level), "{}", TextLogWords(message, fields));
    return;
  }
  entry_fields = &fields;
  spdlog::log(SpdlogLevel(level), "{}", message);
  entry_fields = nullptr;
}

std::string JsonLogLine(std::chrono::milliseconds since_epoch, LogLevel level, std::string_view message,
                        const Json& fields) {
  Json line = {{"ts", UtcTime(since_epoch)}, {"level", LevelName(level)}, {"msg", std::string(message)}};
  for (const auto& [key, value] : fields.items()) line[key] = value;
  return DumpJson(line);
}

std::string TextLogWords(std::string_view message, const Json& fields) {
  std::string words(message);
  for (const auto& [key, value] : fields.items()) words += " " + key + "=" + DumpJson(value);
  return words;
}

}  // namespace berth::cli
