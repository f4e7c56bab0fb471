// gRPC's own complaints, which would go to standard error in its own form.
#pragma once

#include <functional>
#include <string>

namespace berth {

// From now on `write` gets them, a line each, within a LineLimit; any thread, several at once. At most once in a
// process.
void SendGrpcLogTo(std::function<void(const std::string& line)> write);

}  // namespace berth
