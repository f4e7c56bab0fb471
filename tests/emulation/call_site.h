// Where in the kernel's source an operation stands, for the messages of the emulation.
#pragma once

namespace berth::emulation {

struct CallSite {
  const char* file;
  int line;

  // As a default argument: the place of the call. (std::source_location needs a newer clang than the linter's.)
  static constexpr CallSite Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// The same line of the same file; the file's name may have several addresses.
bool Same(const CallSite& a, const CallSite& b);

}  // namespace berth::emulation
