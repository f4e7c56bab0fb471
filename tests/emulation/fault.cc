#include "emulation/fault.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "emulation/block.h"
#include "emulation/scheduler.h"

namespace berth::emulation {
namespace {

struct Faults {
  ~Faults() {
    if (!first) return;
    std::fprintf(stderr, "emulation: the process ends with a fault that nobody looked at: %s\n", first->c_str());
    std::_Exit(EXIT_FAILURE);
  }

  std::mutex mutex;
  std::optional<std::string> first;
  bool pending = false;
};

Faults& faults() {
  static Faults instance;
  return instance;
}

std::string Format(const char* format, std::va_list arguments) {
  std::array<char, 512> text;
  std::vsnprintf(text.data(), text.size(), format, arguments);
  return text.data();
}

}  // namespace

void Fail(CallSite site, const char* format, ...) {
  {
    // A scope of its own: Abandon never returns, and what lives on the stack by then is never destroyed.
    std::va_list arguments;
    va_start(arguments, format);
    std::string message = std::string(site.file) + ":" + std::to_string(site.line) + ": " + Format(format, arguments);
    va_end(arguments);
    if (!InKernel()) {
      std::fprintf(stderr, "emulation: %s\n", message.c_str());
      std::abort();
    }
    std::array<char, 96> place;
    std::snprintf(place.data(), place.size(), " [block (%u, %u, %u), thread %u]", blockIdx.x, blockIdx.y, blockIdx.z,
                  scheduler().current().number);
    RecordFault(message + place.data());
  }
  scheduler().Abandon();
}

void RecordFault(std::string message) {
  std::fprintf(stderr, "emulation: fault: %s\n", message.c_str());
  const std::lock_guard lock(faults().mutex);
  faults().pending = true;
  if (!faults().first) faults().first = std::move(message);
}

bool AtFault() {
  const std::lock_guard lock(faults().mutex);
  return faults().pending;
}

void ClearFault() {
  const std::lock_guard lock(faults().mutex);
  faults().pending = false;
}

std::optional<std::string> TakeFault() {
  const std::lock_guard lock(faults().mutex);
  return std::exchange(faults().first, std::nullopt);
}

}  // namespace berth::emulation
