// Where tests find data that is not in the project, and what they do without it: skip with a message in a stranger's
// clone, fail where CI=true.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace berth::test {

// A file in tests/data; always there.
std::string DataFile(const std::string& relative);
// A file under the shared data folder (CMake: BERTH_SHARED_DIR); empty where it is absent.
std::string SharedFile(const std::string& relative);
// The default model in the user's cache; empty where it was not fetched.
std::string DefaultModelFile();
// Whole file; aborts the test program where it cannot be read.
std::string ReadFile(const std::string& path);

inline bool InCi() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

}  // namespace berth::test

// Puts the path in `var`, or skips the test (fails it where CI=true).
#define BERTH_REQUIRE_FILE(var, path_expression, what)          \
  const std::string var = (path_expression);                    \
  if (var.empty()) {                                            \
    if (::berth::test::InCi()) FAIL() << what << " is missing"; \
    GTEST_SKIP() << what << " is missing";                      \
  }
#define BERTH_REQUIRE_SHARED(var, relative) \
  BERTH_REQUIRE_FILE(var, ::berth::test::SharedFile(relative), "shared test data " << (relative))
#define BERTH_REQUIRE_DEFAULT_MODEL(var) \
  BERTH_REQUIRE_FILE(var, ::berth::test::DefaultModelFile(), "the default model ('make model' fetches it)")
