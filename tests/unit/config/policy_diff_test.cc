#include "config/policy_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/policy_file.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ServerConfig Parsed(const std::string& text) {
  Diagnostics diagnostics("p.yaml");
  ServerConfig config = ParsePolicy("version: 1\n" + text, &diagnostics);
  for (const std::string& line : diagnostics.Lines()) ADD_FAILURE() << line;
  return config;
}

std::vector<std::string> Changes(const std::string& before, const std::string& after) {
  std::vector<std::string> lines;
  for (const Change& change : CompareConfigs(Parsed(before), Parsed(after))) lines.push_back(FormatChange(change));
  return lines;
}

TEST(CompareConfigs, TellsOldAndNewOfEachKey) {
  EXPECT_THAT(
      Changes("classes: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 40%}}\n"
              "scheduler: {prefill_min_share: {batch: 10%}}\n",
              "classes: {interactive: {kv_guarantee: 50%, queue: {max_wait: 2s}}, batch: {kv_guarantee: 40%}}\n"
              "scheduler: {max_running_sequences: 8, prefill_min_share: {batch: 20%}}\n"
              "tenants: {default: {max_kv: 40%, classes: [interactive, batch]}}\n"),
      ElementsAre("scheduler.max_running_sequences: 64 -> 8", "classes.interactive.kv_guarantee: 60% -> 50%",
                  "classes.interactive.queue.max_wait: 1m -> 2s", "scheduler.prefill_min_share.batch: 10% -> 20%",
                  "tenants.default.classes: all -> [interactive, batch]", "tenants.default.max_kv: none -> 40%"));
}

TEST(CompareConfigs, NamesClassesAndTenantsThatCameOrWent) {
  EXPECT_THAT(Changes("classes: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 40%}}\n",
                      "classes: {gold: {kv_guarantee: 40%}, interactive: {kv_guarantee: 60%}}\n"
                      "tenants: {acme: {}, default: {}}\n"),
              ElementsAre("classes.gold: added", "classes.batch: removed", "tenants.acme: added"));
}

TEST(CompareConfigs, OrderAndSpellingAreNoChange) {
  EXPECT_THAT(Changes("classes: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 40%}}\n"
                      "server: {drain_timeout: 60s, max_message_size: 4MiB}\n",
                      "server: {max_message_size: 4096KiB, drain_timeout: 1m}\n"
                      "classes: {batch: {kv_guarantee: 40.0%, priority: 0}, interactive: {kv_guarantee: 60%}}\n"),
              IsEmpty());
}

TEST(CompareConfigs, ShowsOfAnApiKeyItsIdAndTheBeginningOfItsHash) {
  const std::string hash(64, 'a');
  EXPECT_THAT(
      Changes("tenants: {default: {api_key_sha256: [{id: ci, sha256: " + hash + "}]}}\n",
              "tenants: {default: {api_key_sha256: [{id: ci, sha256: b" + hash.substr(1) + ", admin: true}]}}\n"),
      ElementsAre("tenants.default.api_key_sha256: [ci aaaaaaaa] -> [ci baaaaaaa admin]"));
}

TEST(RefuseRestartKeys, NamesEachKeyThatOnlyARestartCanChange) {
  const std::string before = "server: {grpc: 127.0.0.1:1}\n";
  const std::string after =
      "server: {grpc: 127.0.0.1:2, drain_delay: 1s}\nkv_cache: {block_tokens: 32}\n"
      "model: {path: m.gguf}\n";
  Diagnostics diagnostics("p.yaml");
  RefuseRestartKeys(CompareConfigs(Parsed(before), Parsed(after)), &diagnostics);
  EXPECT_THAT(
      diagnostics.Lines(),
      ElementsAre("p.yaml: error: model.path: changed from nothing to m.gguf, which takes a restart; put it back, or "
                  "restart the server",
                  "p.yaml: error: kv_cache.block_tokens: changed from 16 to 32, which takes a restart; put it back, "
                  "or restart the server",
                  "p.yaml: error: server.grpc: changed from 127.0.0.1:1 to 127.0.0.1:2, which takes a restart; put "
                  "it back, or restart the server"));
}

}  // namespace
}  // namespace berth
