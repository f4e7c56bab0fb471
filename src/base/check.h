// Broken invariants end the process with the place and the values that broke it: a wrong block book is worse than a
// restart.
#pragma once

#include <string_view>

namespace berth {

// Prints "file:line: check failed: what (detail)" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what, std::string_view detail = {});

}  // namespace berth

// For bugs of ours, never for bad input. Kept in release builds.
#define BERTH_CHECK(condition)                              \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::berth::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define BERTH_CHECK_MSG(condition, detail)                            \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::berth::CheckFailed(__FILE__, __LINE__, #condition, (detail)); \
  } while (false)
