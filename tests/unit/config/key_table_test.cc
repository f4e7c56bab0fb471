#include "config/key_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "config/diagnostics.h"
#include "config/read_value.h"

namespace berth {
namespace {

struct Settings {
  ServerConfig config;
  ClassSettings service_class;
  TenantSettings tenant;

  Scope scope() { return {&config, &service_class, &tenant}; }
};

TEST(KeyTable, EachKeyStandsOnceAndIsExplained) {
  std::set<std::string_view> paths;
  for (const Key& key : PolicyKeys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.help.empty()) << key.path;
    EXPECT_EQ(FindKey(key.path), &key);
    EXPECT_FALSE(IsSection(key.path)) << key.path;
  }
}

// Two keys that set one field would overwrite each other.
TEST(KeyTable, EachKeySetsAFieldOfItsOwn) {
  Settings settings;
  std::set<const void*> fields;
  for (const Key& key : PolicyKeys()) {
    const void* const field =
        std::visit([](auto* f) { return static_cast<const void*>(f); }, key.field(settings.scope()));
    EXPECT_TRUE(fields.insert(field).second) << key.path;
  }
}

TEST(KeyTable, EveryDefaultAsItIsPrintedIsReadBackTheSame) {
  for (const Key& key : PolicyKeys()) {
    if (key.rule.kind == ValueKind::kTexts || key.rule.kind == ValueKind::kApiKeys) continue;
    Settings settings;
    const Field field = key.field(settings.scope());
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = FormatField(key.rule, field);
    if (node.text.empty()) continue;  // absent
    Diagnostics diagnostics("");
    ReadValue(key.rule, field, node, std::string(key.path), &diagnostics);
    EXPECT_TRUE(diagnostics.ok()) << diagnostics.Lines().front();
    EXPECT_EQ(FormatField(key.rule, field), node.text) << key.path;
  }
}

TEST(KeyTable, ListenersModelAndCacheTakeARestartAndTheRestIsLive) {
  for (const char* path : {"server.grpc", "model.path", "kv_cache.block_tokens", "server.tls.client_ca"}) {
    EXPECT_EQ(FindKey(path)->effect, Effect::kRestart) << path;
  }
  for (const Key& key : PolicyKeys()) {
    const bool live = key.path.starts_with("classes.") || key.path.starts_with("tenants.") ||
                      key.path.starts_with("scheduler.") || key.path == "default_class";
    if (live) {
      EXPECT_EQ(key.effect, Effect::kLive) << key.path;
    }
    const bool restart = key.path.starts_with("model.") || key.path.starts_with("kv_cache.");
    if (restart) {
      EXPECT_EQ(key.effect, Effect::kRestart) << key.path;
    }
  }
}

}  // namespace
}  // namespace berth
