// What tests of the policy file share: texts in, findings out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/diagnostics.h"
#include "config/policy_file.h"
#include "config/resolve_policy.h"

namespace berth::test {

struct Case {
  const char* what;
  std::string yaml;
  std::vector<std::string> lines;  // every finding
};

inline PolicyContext SmallPool() {
  PolicyContext context;
  context.pool = {100, 16};
  context.block_bytes = 1000;
  context.context_tokens = 2048;
  return context;
}

inline std::vector<std::string> ParseFindings(const std::string& yaml) {
  Diagnostics diagnostics("p.yaml");
  ParsePolicy(yaml, &diagnostics);
  return diagnostics.Lines();
}

inline std::vector<std::string> ResolveFindings(const std::string& yaml, const PolicyContext& context) {
  Diagnostics diagnostics("p.yaml");
  const ServerConfig config = ParsePolicy(yaml, &diagnostics);
  EXPECT_TRUE(diagnostics.ok()) << yaml;
  ResolvePolicy(config, context, &diagnostics);
  return diagnostics.Lines();
}

inline void ExpectFindings(const Case& c, const std::vector<std::string>& found) {
  EXPECT_EQ(found, c.lines) << c.what << ":\n" << c.yaml.substr(0, 500);
}

}  // namespace berth::test
