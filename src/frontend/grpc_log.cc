#include "frontend/grpc_log.h"

#include <grpc/support/log.h>

#include <utility>

#include "base/check.h"

namespace berth {
namespace {

std::function<void(const std::string& line)>* writer = nullptr;

void Write(gpr_log_func_args* args) {
  const std::string file = args->file;
  (*writer)("gRPC: " + std::string(args->message) + " (" + file.substr(file.rfind('/') + 1) + ":" +
            std::to_string(args->line) + ")");
}

}  // namespace

void SendGrpcLogTo(std::function<void(const std::string& line)> write) {
  BERTH_CHECK(writer == nullptr);
  // gRPC's threads may outlive everything else: it is never freed.
  writer = new std::function<void(const std::string& line)>(std::move(write));
  gpr_set_log_function(Write);
}

}  // namespace berth
