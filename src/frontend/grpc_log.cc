#include "frontend/grpc_log.h"

#include <grpc/support/log.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "frontend/line_limit.h"

namespace berth {
namespace {

struct Writer {
  std::function<void(const std::string& line)> write;
  LineLimit limit;  // each failed handshake is a line
};

Writer* writer = nullptr;

void Write(gpr_log_func_args* args) {
  const std::string file = args->file;
  const std::string line = "gRPC: " + std::string(args->message) + " (" + file.substr(file.rfind('/') + 1) + ":" +
                           std::to_string(args->line) + ")";
  if (const auto taken = writer->limit.Take(line, std::chrono::steady_clock::now())) writer->write(*taken);
}

}  // namespace

void SendGrpcLogTo(std::function<void(const std::string& line)> write) {
  BERTH_CHECK(writer == nullptr);
  // gRPC's threads may outlive everything else: it is never freed.
  writer = new Writer{.write = std::move(write), .limit = {}};
  gpr_set_log_function(Write);
}

}  // namespace berth
