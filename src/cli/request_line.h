// A request as one JSON object of `berth batch`'s input: the prompt, and what differs from the command line's flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/request.h"
#include "cli/output.h"
#include "cli/request_flags.h"
#include "config/server_config.h"

namespace berth::cli {

// RequestFields, and what only a request with an answer of its own can have: return_token_ids.
std::vector<RequestField> LineFields(const RequestSettings& limits);

// All settings by their names: equal texts mean equal requests.
Json FieldsJson(RequestFlags flags, const RequestSettings& limits);

class RequestLineParser {
 public:
  RequestLineParser(const RequestFlags& defaults, const RequestSettings& limits)
      : defaults_(defaults), limits_(limits), fields_(LineFields(limits)) {}

  // `id` gets the line's own, as it is: null where it has none or the line is no object. Errors name the member at
  // fault. Thread-safe.
  absl::StatusOr<GenerateSpec> Parse(std::string_view line, Json* id) const;

 private:
  const RequestField* Find(const std::string& given) const;
  std::string NameOf(const std::string& given) const;
  absl::Status SetMember(const std::string& name, const std::string& given, const nlohmann::json& object,
                         RequestFlags* flags, GenerateSpec* prompt) const;

  const RequestFlags defaults_;
  const RequestSettings limits_;
  const std::vector<RequestField> fields_;
};

}  // namespace berth::cli
