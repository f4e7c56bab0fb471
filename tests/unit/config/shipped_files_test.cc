// The files that come with the project say what the code does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "config/policy_diff.h"
#include "config/policy_file.h"
#include "config/resolve_policy.h"
#include "config/schema.h"
#include "config/suggestions.h"

namespace berth {
namespace {

using ::testing::IsEmpty;

std::string RepositoryFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadConfigFile(absl::StrCat(BERTH_TEST_DATA_DIR, "/../../", path));
  EXPECT_TRUE(text.ok()) << path << ": " << text.status();
  return text.ok() ? *text : "";
}

TEST(ShippedFiles, ThePolicyFileIsTheDefaultPolicyAndHasNothingToWarnOf) {
  Diagnostics diagnostics("configs/berth.yaml");
  const ServerConfig config = ParsePolicy(RepositoryFile("configs/berth.yaml"), &diagnostics);
  PolicyContext context;
  context.pool = {10'000, config.kv_cache.block_tokens};
  EXPECT_TRUE(ResolvePolicy(config, context, &diagnostics).has_value());
  EXPECT_THAT(diagnostics.Lines(), IsEmpty());
  for (const Change& change : CompareConfigs(ServerConfig(), config)) {
    // The file writes the one tenant's classes out.
    if (change.key != "tenants.default.classes") ADD_FAILURE() << FormatChange(change);
  }
}

TEST(ShippedFiles, TheSchemaIsWhatTheKeyTableSays) {
  EXPECT_EQ(RepositoryFile("configs/berth.schema.json"), PolicySchema())
      << "after a change of the key table: berth check --schema > configs/berth.schema.json";
}

TEST(ShippedFiles, ThePageForVllmUsersHasEveryFlagThatIsRecognised) {
  const std::string page = RepositoryFile("docs/coming-from-vllm.md");
  for (const VllmFlag& flag : VllmFlags()) {
    std::string spelled = absl::StrCat("`--", std::string(flag.name));
    for (char& c : spelled) c = c == '_' ? '-' : c;
    const std::size_t row = page.find("| " + spelled);
    ASSERT_NE(row, std::string::npos) << spelled;
    if (flag.key.empty()) continue;
    const std::string line = page.substr(row, page.find('\n', row) - row);
    EXPECT_NE(line.find(absl::StrCat("`", std::string(flag.key))), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace berth
