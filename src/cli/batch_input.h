// The requests of `berth batch`, line by line, however large the file.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/input.h"

namespace berth::cli {

// The lines that are not blank.
class BatchInput {
 public:
  // "-" is standard input. Errors: there is no such file, or it is a directory.
  static absl::StatusOr<std::unique_ptr<BatchInput>> Open(const std::string& path);

  struct Line {
    std::int64_t index = 0;  // from 0, blank ones counted
    std::string text;
    absl::Status fault;  // it is too long
  };
  // Nothing at the end; an error where it cannot be read.
  absl::StatusOr<std::optional<Line>> Next();

  const struct stat& info() const { return info_; }
  bool is_file() const { return S_ISREG(info_.st_mode); }
  // From the beginning again. REQUIRES: is_file().
  void Rewind();

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  BatchInput(std::string name, File file, const struct stat& info);

  std::string name_;
  File file_;
  struct stat info_;
  LineReader lines_;
};

}  // namespace berth::cli
