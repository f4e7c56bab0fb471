// Messages of the API as JSON for scripts.
#pragma once

#include <cstdint>
#include <string>

#include "cli/output.h"

namespace google::protobuf {
class Message;
}

namespace berth::cli {

// Every field that is set or has a default, by its name in the proto: numbers as numbers, enums as the word that
// follows the type's name ("serving"), durations as seconds, times as ISO 8601; absent messages as null.
Json ProtoJson(const google::protobuf::Message& message);

// "2026-11-29T10:00:00Z"
std::string Iso8601(std::int64_t unix_seconds);

}  // namespace berth::cli
