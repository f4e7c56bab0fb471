// Runs the lines of `berth batch`'s input that have no answer yet.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/batch_input.h"
#include "cli/batch_output.h"
#include "cli/batch_progress.h"
#include "cli/collect.h"
#include "cli/fingerprint.h"
#include "cli/request_line.h"
#include "cli/runtime.h"

namespace berth::cli {

// Which lines are still to be run.
class RemainingLines {
 public:
  // `options`: of what makes an answer what it is beside the line itself. `output` outlives this; the names are for
  // errors.
  RemainingLines(const Fingerprint& options, const BatchOutput* output, std::string input_name, std::string output_name)
      : options_(options), output_(output), input_name_(std::move(input_name)), output_name_(std::move(output_name)) {}

  std::string RequestHash(const std::string& line) const;
  // False: an earlier run answered it. An error: it answered something else in its place.
  absl::StatusOr<bool> Contains(const BatchInput::Line& line) const;
  // Looks at all lines, before any is run, and counts them. REQUIRES: the input can be rewound.
  absl::StatusOr<std::int64_t> CountLines(BatchInput* input) const;

 private:
  absl::Status OtherRequest(std::int64_t index) const;

  const Fingerprint options_;
  const BatchOutput* const output_;
  const std::string input_name_;
  const std::string output_name_;
};

// As many lines at once as there are workers: each has one request in the engine at a time.
class BatchRun {
 public:
  struct Parts {  // all outlive the run
    const RequestLineParser* parser = nullptr;
    Runtime* runtime = nullptr;
    BatchInput* input = nullptr;
    const RemainingLines* remaining = nullptr;
    BatchOutput* output = nullptr;
    BatchProgress* progress = nullptr;
  };
  explicit BatchRun(const Parts& parts) : parts_(parts) {}

  // Returns when all is done or the run was stopped; what ended it early, if not a stop request or a reader that went
  // away.
  absl::Status Go(std::int32_t workers);
  // Any thread: what runs is cancelled and leaves no line.
  void RequestStop() { stop_.request_stop(); }

 private:
  void Work();
  std::optional<BatchInput::Line> NextLine();
  absl::StatusOr<TokenizedRequest> RequestOf(const BatchInput::Line& line, Json* id) const;
  std::optional<Json> AnswerTo(const BatchInput::Line& line);
  std::optional<Json> Run(Json json, const BatchInput::Line& line, TokenizedRequest request);
  void AddAnswer(const Answer& answer, const OutputSpec& wanted, Json* json) const;
  Json ErrorJson(Json json, const Refusal& refusal);
  void Fail(const absl::Status& status);
  void FailLocked(const absl::Status& status);

  const Parts parts_;
  std::stop_source stop_;
  std::mutex mutex_;          // also of the input
  bool input_ended_ = false;  // guarded by mutex_
  absl::Status failure_;      // guarded by mutex_
};

}  // namespace berth::cli
