// Commands that answer line by line: one JSON object comes in on standard input, one goes out.
#pragma once

#include <functional>
#include <variant>

#include <nlohmann/json.hpp>

#include "cli/outcome.h"
#include "cli/output.h"

namespace berth::cli {

// Answers each line, flushed: whoever feeds one line at a time waits for the answer. The first fault ends it, with the
// number of its line in front; so does a reader that went away, quietly.
Outcome AnswerJsonLines(Output& out, const std::function<std::variant<Json, Outcome>(const nlohmann::json&)>& answer);

}  // namespace berth::cli
