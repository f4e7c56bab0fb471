// Where the answers of `berth batch` go: a file that a later run goes on with, or a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/output.h"

namespace berth::cli {

// Each answer is one line, written whole by one call of the system, so that whenever a run is killed its file holds
// whole lines and at most the torn beginning of one. An answer says which line of the input it answers ("index", from
// 0) and tells by "request_hash" what it was asked; one with an "error" is none.
class BatchOutput {
 public:
  // "-" is standard output. A file is locked against a second run. What an earlier run left is taken in. Errors:
  // another run has it, or it holds something else.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path, bool overwrite);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  enum class Found : std::uint8_t { kNothing, kAnswer, kOtherAnswer };
  // Whether an earlier run answered this line, as it is now.
  Found Find(std::int64_t index, const std::string& request_hash) const;
  std::int64_t answers() const { return static_cast<std::int64_t>(answers_.size()); }
  // -1 where there are none.
  std::int64_t last_index() const { return last_index_; }

  // Before the first Append: a torn last line and the errors that an earlier run left are removed, to be tried again.
  absl::Status DropUnanswered();
  // Any thread. After an error nothing more is written; the file ends with a whole line.
  absl::Status Append(const Json& line);
  // The reader of the stream went away: nothing is wrong, and nothing more is wanted.
  bool closed() const;
  // What was appended survives a power failure from now on.
  absl::Status Sync();

 private:
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  BatchOutput(std::string path, int fd, bool is_file) : path_(std::move(path)), fd_(fd), is_file_(is_file) {}
  static absl::StatusOr<std::unique_ptr<BatchOutput>> OpenFile(const std::string& path);
  absl::Status TakeIn();
  absl::Status TakeInLine(const std::string& where, std::string_view line, bool* is_error);
  absl::Status Rewrite();
  int CopyAnswers(int to) const;
  absl::Status Failure(const std::string& what) const;

  const std::string path_;
  int fd_;
  const bool is_file_;
  std::unordered_map<std::int64_t, std::string> answers_;  // hash by index
  std::int64_t last_index_ = -1;
  std::vector<Range> errors_;  // lines, by place
  std::int64_t end_ = 0;       // of the whole lines

  mutable std::mutex mutex_;
  int error_ = 0;  // guarded by mutex_; errno of the first failure
};

}  // namespace berth::cli
