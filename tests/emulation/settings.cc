#include "emulation/settings.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "emulation/call_site.h"
#include "emulation/fault.h"

namespace berth::emulation {
namespace {

Settings FromEnvironment() {
  Settings result;
  if (const char* name = std::getenv("BERTH_EMULATION_ORDER")) {
    const std::string_view order = name;
    if (order == "reverse") {
      result.order = Order::kReverse;
    } else if (order == "random") {
      result.order = Order::kRandom;
    } else if (order == "skew") {
      result.order = Order::kSkew;
    } else if (order != "forward") {
      Fail(CallSite::Here(), "BERTH_EMULATION_ORDER is '%s': use forward, reverse, random or skew", name);
    }
  }
  if (const char* seed = std::getenv("BERTH_EMULATION_SEED")) result.seed = std::strtoull(seed, nullptr, 10);
  return result;
}

}  // namespace

bool Same(const CallSite& a, const CallSite& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

Settings& settings() {
  static Settings instance = FromEnvironment();
  return instance;
}

Counters& counters() {
  static Counters instance;
  return instance;
}

std::uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace berth::emulation
