#include "cli/request_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "base/text.h"
#include "cli/input.h"

namespace berth::cli {
namespace {

constexpr std::size_t kMaxIdBytes = 1024;
constexpr std::size_t kMostStopTokenIds = 1024;

// The other name of a member that is not a RequestField: what the command line calls it, or other tools do.
struct Alias {
  const char* name;
  const char* field;
};
constexpr std::array<Alias, 4> kAliases = {
    {{"text", "prompt"}, {"prompt_ids", "token_ids"}, {"stop", "stop_strings"}, {"stop_token_id", "stop_token_ids"}}};

absl::Status Fault(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError("\"" + std::string(CutAtCharacter(name, 64)) + "\" " + what);
}

// "--max-tokens" → "max_tokens"
std::string FlagAsMember(std::string_view flag) {
  std::string name(flag.substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

absl::Status SetFloat(const std::string& name, const nlohmann::json& value, const RequestField::Float& field,
                      float* out) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  const bool inside = number >= static_cast<double>(field.min) && number <= static_cast<double>(field.max) &&
                      !(field.above_min && number == static_cast<double>(field.min));
  if (!inside) {
    return Fault(name, std::string("must be a number ") + (field.above_min ? "above " : "from ") +
                           DumpJson(static_cast<double>(field.min)) + (field.above_min ? " and at most " : " to ") +
                           DumpJson(static_cast<double>(field.max)));
  }
  *out = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status SetInt(const std::string& name, const nlohmann::json& value, const RequestField::Int& field,
                    std::int32_t* out) {
  // A number that only unsigned integers hold is too large for any of the fields.
  const bool whole =
      value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT32_MAX);
  if (!whole || value.get<std::int64_t>() < field.min || value.get<std::int64_t>() > field.max) {
    return Fault(name, field.max == INT32_MAX ? "must be a whole number, " + std::to_string(field.min) + " or more"
                                              : "must be a whole number from " + std::to_string(field.min) + " to " +
                                                    std::to_string(field.max));
  }
  *out = value.get<std::int32_t>();
  return absl::OkStatus();
}

absl::Status SetField(const std::string& name, const nlohmann::json& value, const RequestField& field,
                      RequestFlags* flags) {
  if (const auto* number = std::get_if<RequestField::Float>(&field.value)) {
    return SetFloat(name, value, *number, &number->of(*flags));
  }
  if (const auto* whole = std::get_if<RequestField::Int>(&field.value)) {
    return SetInt(name, value, *whole, &whole->of(*flags));
  }
  if (!value.is_boolean()) return Fault(name, "must be true or false");
  std::get<RequestField::Switch>(field.value).of(*flags) = value.get<bool>();
  return absl::OkStatus();
}

// One text, or a list of them.
absl::Status SetStops(const std::string& name, const nlohmann::json& value, const RequestSettings& limits,
                      StoppingSpec* stopping) {
  stopping->stop_strings.clear();
  const auto add = [&](const nlohmann::json& stop) {
    if (stop.is_string()) stopping->stop_strings.push_back(stop.get<std::string>());
    return stop.is_string();
  };
  if (!(value.is_array() ? std::all_of(value.begin(), value.end(), add) : add(value))) {
    return Fault(name, "must be a text or a list of texts");
  }
  return CheckStopStrings(stopping->stop_strings, limits, "\"" + name + "\"");
}

absl::Status SetStopIds(const std::string& name, const nlohmann::json& object, StoppingSpec* stopping) {
  absl::StatusOr<std::vector<TokenId>> ids = IdsMember(object, name);
  if (!ids.ok()) return ids.status();
  if (ids->size() > kMostStopTokenIds) return Fault(name, "may have 1024 ids at most");
  stopping->stop_token_ids = *std::move(ids);
  return absl::OkStatus();
}

// {"42": -5}
absl::Status SetBiases(const std::string& name, const nlohmann::json& value, const RequestSettings& limits,
                       SamplingSpec* sampling) {
  if (!value.is_object()) return Fault(name, "must be an object of token ids and numbers, such as {\"42\": -5}");
  sampling->logit_bias.clear();
  for (const auto& [key, bias] : value.items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return Fault(name, "has the key \"" + std::string(CutAtCharacter(key, 64)) + "\", which is no token id");
    }
    const float number = bias.is_number() ? bias.get<float>() : NAN;
    if (const absl::Status status = AddLogitBias(id, number, limits, sampling); !status.ok()) {
      return Fault(name, std::string(status.message()));
    }
  }
  return absl::OkStatus();
}

Json IdOf(const nlohmann::json& object) {
  const auto found = object.find("id");
  return found == object.end() ? Json(nullptr) : Json(*found);
}

absl::Status CheckId(const Json& id) {
  const bool valid = id.is_null() || id.is_number_integer() ||
                     (id.is_string() && id.get_ref<const std::string&>().size() <= kMaxIdBytes);
  return valid ? absl::OkStatus() : Fault("id", "must be a text of at most 1024 bytes or a whole number");
}

}  // namespace

std::vector<RequestField> LineFields(const RequestSettings& limits) {
  std::vector<RequestField> fields = RequestFields(limits);
  fields.push_back({"--return-token-ids", "return_token_ids", "Output",
                    RequestField::Switch{[](RequestFlags& f) -> bool& { return f.output.return_token_ids; }},
                    "token ids of the prompt and of each choice as well"});
  return fields;
}

Json FieldsJson(RequestFlags flags, const RequestSettings& limits) {
  Json json = Json::object();
  for (const RequestField& field : LineFields(limits)) {
    if (const auto* number = std::get_if<RequestField::Float>(&field.value)) {
      json[field.field] = number->of(flags);
    } else if (const auto* whole = std::get_if<RequestField::Int>(&field.value)) {
      json[field.field] = whole->of(flags);
    } else {
      json[field.field] = std::get<RequestField::Switch>(field.value).of(flags);
    }
  }
  json["seed"] = flags.seed ? Json(*flags.seed) : Json(nullptr);
  json["logit_bias"] = flags.sampling.logit_bias;
  json["stop_strings"] = flags.stopping.stop_strings;
  json["stop_token_ids"] = flags.stopping.stop_token_ids;
  return json;
}

std::string RequestLineParser::NameOf(const std::string& given) const {
  if (const RequestField* field = Find(given)) return field->field;
  const auto* alias = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return given == a.name; });
  return alias != kAliases.end() ? alias->field : given;
}

const RequestField* RequestLineParser::Find(const std::string& given) const {
  for (const RequestField& field : fields_) {
    if (given == field.field || given == FlagAsMember(field.flag)) return &field;
  }
  return nullptr;
}

absl::Status RequestLineParser::SetMember(const std::string& name, const std::string& given,
                                          const nlohmann::json& object, RequestFlags* flags,
                                          GenerateSpec* prompt) const {
  const nlohmann::json& value = object.at(given);
  if (name == "prompt") {
    if (!value.is_string()) return Fault(given, "must be a text");
    prompt->prompt_text = value.get<std::string>();
    return absl::OkStatus();
  }
  if (name == "token_ids") {
    absl::StatusOr<std::vector<TokenId>> ids = IdsMember(object, given);
    if (!ids.ok()) return ids.status();
    prompt->prompt_ids = *std::move(ids);
    prompt->prompt_is_ids = true;
    return absl::OkStatus();
  }
  if (name == "stop_strings") return SetStops(given, value, limits_, &flags->stopping);
  if (name == "stop_token_ids") return SetStopIds(given, object, &flags->stopping);
  if (name == "logit_bias") return SetBiases(given, value, limits_, &flags->sampling);
  if (name == "seed") {
    if (!value.is_number_unsigned()) return Fault(given, "must be a whole number from 0 to 2^64 - 1");
    flags->seed = value.get<std::uint64_t>();
    return absl::OkStatus();
  }
  const RequestField* field = Find(given);
  return field != nullptr ? SetField(given, value, *field, flags) : Fault(given, "is no member of a request");
}

absl::StatusOr<GenerateSpec> RequestLineParser::Parse(std::string_view line, Json* id) const {
  *id = nullptr;
  const absl::StatusOr<nlohmann::json> object = ParseJsonObject(line);
  if (!object.ok()) return object.status();
  Json own_id = IdOf(*object);
  if (absl::Status status = CheckId(own_id); !status.ok()) return status;
  *id = std::move(own_id);

  RequestFlags flags = defaults_;
  GenerateSpec prompt;
  std::set<std::string> seen;
  for (const auto& [given, value] : object->items()) {
    if (given == "id" || value.is_null()) continue;  // null = left out
    const std::string name = NameOf(given);
    if (!seen.insert(name).second) return Fault(given, "is given twice, under two names");
    if (absl::Status status = SetMember(name, given, *object, &flags, &prompt); !status.ok()) return status;
  }
  const bool has_text = seen.contains("prompt");
  if (has_text == prompt.prompt_is_ids) {
    return absl::InvalidArgumentError(has_text ? "give only one of \"prompt\" and \"token_ids\""
                                               : "a prompt is missing: give \"prompt\" or \"token_ids\"");
  }
  absl::StatusOr<GenerateSpec> spec = MakeSpec(flags, limits_);
  if (!spec.ok()) return spec.status();
  spec->prompt_text = std::move(prompt.prompt_text);
  spec->prompt_ids = std::move(prompt.prompt_ids);
  spec->prompt_is_ids = prompt.prompt_is_ids;
  return spec;
}

}  // namespace berth::cli
