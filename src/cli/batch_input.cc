#include "cli/batch_input.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace berth::cli {
namespace {

// More than any context's prompt, spelled in JSON; each request in flight may hold one line.
constexpr std::int64_t kMaxLineBytes = 16LL * 1024 * 1024;

int Keep(std::FILE* /*standard_input*/) { return 0; }

}  // namespace

BatchInput::BatchInput(std::string name, File file, const struct stat& info)
    : name_(std::move(name)), file_(std::move(file)), info_(info), lines_(file_.get(), name_, kMaxLineBytes) {}

absl::StatusOr<std::unique_ptr<BatchInput>> BatchInput::Open(const std::string& path) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "standard input" : path;
  File file = is_stdin ? File(stdin, &Keep) : File(std::fopen(path.c_str(), "rb"), &std::fclose);
  struct stat info {};
  if (file == nullptr || fstat(fileno(file.get()), &info) != 0) {
    return absl::NotFoundError("cannot read " + name + ": " + std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("cannot read " + name + ": it is a directory");
  return std::unique_ptr<BatchInput>(new BatchInput(name, std::move(file), info));
}

absl::StatusOr<std::optional<BatchInput::Line>> BatchInput::Next() {
  for (;;) {
    const absl::StatusOr<std::optional<std::string_view>> line = lines_.Next();
    const std::int64_t index = lines_.line_number() - 1;
    if (absl::IsOutOfRange(line.status())) return Line{index, "", line.status()};
    if (!line.ok()) return line.status();
    if (!line->has_value()) return std::nullopt;
    if ((*line)->find_first_not_of(" \t\r") == std::string_view::npos) continue;
    return Line{index, std::string(**line), absl::OkStatus()};
  }
}

void BatchInput::Rewind() {
  std::rewind(file_.get());
  lines_ = LineReader(file_.get(), name_, kMaxLineBytes);
}

}  // namespace berth::cli
