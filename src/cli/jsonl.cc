#include "cli/jsonl.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/input.h"

namespace berth::cli {

Outcome AnswerJsonLines(Output& out, const std::function<std::variant<Json, Outcome>(const nlohmann::json&)>& answer) {
  LineReader lines(stdin, "standard input");
  while (!out.closed()) {
    const absl::StatusOr<std::optional<std::string_view>> line = lines.Next();
    if (!line.ok()) return FromStatus(line.status());
    if (!line->has_value()) break;
    const absl::StatusOr<nlohmann::json> object = ParseJsonObject(**line);
    if (!object.ok()) return FromStatus(AtLine(lines.line_number(), object.status()));
    std::variant<Json, Outcome> result = answer(*object);
    if (auto* fault = std::get_if<Outcome>(&result)) {
      fault->error = "line " + std::to_string(lines.line_number()) + ": " + fault->error;
      return std::move(*fault);
    }
    if (out.WriteJson(std::get<Json>(result))) out.Flush();
  }
  return {};
}

}  // namespace berth::cli
