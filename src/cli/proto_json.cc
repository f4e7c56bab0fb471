#include "cli/proto_json.h"

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

namespace berth::cli {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// SERVER_STATE_BACKEND_FAULT of ServerState = "backend_fault".
std::string WordOf(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  prefix += '_';
  std::string word = value.name();
  if (word.starts_with(prefix)) word.erase(0, prefix.size());
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

Json MessageValue(const Message& message) {
  const std::string& type = message.GetDescriptor()->full_name();
  if (type == google::protobuf::Duration::descriptor()->full_name()) {
    const auto& duration = static_cast<const google::protobuf::Duration&>(message);
    return static_cast<double>(duration.seconds()) + duration.nanos() / 1e9;
  }
  if (type == google::protobuf::Timestamp::descriptor()->full_name()) {
    return Iso8601(static_cast<const google::protobuf::Timestamp&>(message).seconds());
  }
  return ProtoJson(message);
}

// `index` < 0: the field is not repeated.
Json FieldValue(const Message& message, const FieldDescriptor* field, int index) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(message, field) : r.GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(message, field) : r.GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r.GetDouble(message, field) : r.GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(message, field) : r.GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return WordOf(one ? *r.GetEnum(message, field) : *r.GetRepeatedEnum(message, field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? r.GetString(message, field) : r.GetRepeatedString(message, field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageValue(one ? r.GetMessage(message, field) : r.GetRepeatedMessage(message, field, index));
    default:
      return nullptr;
  }
}

}  // namespace

Json ProtoJson(const Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  Json json = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    Json& value = json[field->name()];
    if (field->is_repeated()) {
      value = Json::array();
      for (int at = 0; at < reflection.FieldSize(message, field); ++at) value.push_back(FieldValue(message, field, at));
    } else if (!field->has_presence() || reflection.HasField(message, field)) {
      value = FieldValue(message, field, -1);
    }
  }
  return json;
}

std::string Iso8601(std::int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "?";
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace berth::cli
