#include "config/yaml_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "policy_cases.h"

namespace berth {
namespace {

using test::Case;

std::string Repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

std::string NestedMaps(int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  return text;
}

const Case kNoYaml[] = {
    {"an empty file", "", {"p.yaml:1:1: error: the file is empty; it begins with 'version: 1'"}},
    {"a file of comments alone", "# nothing\n", {"p.yaml:1:1: error: the file is empty; it begins with 'version: 1'"}},
    {"no version", "classes: {}\n", {"p.yaml:1:1: error: version is missing; the file begins with 'version: 1'"}},
    {"another version",
     "version: 2\n",
     {"p.yaml:1:1: error: version: \"2\" is not a version this program reads; write 1"}},
    {"a quoted version",
     "version: \"1\"\n",
     {"p.yaml:1:1: error: version: \"1\" is not a version this program reads; write 1"}},
    {"a list instead of keys", "- version\n- 1\n", {"p.yaml:1:1: error: is a list; a map of keys is wanted"}},
    {"one value instead of keys", "version 1\n", {"p.yaml:1:1: error: is one value; a map of keys is wanted"}},
    {"several documents",
     "version: 1\n---\nversion: 1\n",
     {"p.yaml:2:1: error: the file holds several documents; keep one, and take out the line '---' between them"}},
    {"an anchor",
     "version: 1\nserver: &a {drain_delay: 1s}\n",
     {"p.yaml:2:9: error: anchors and aliases (& and *) are not taken; write the value out"}},
    {"an alias",
     "version: 1\nserver: *a\n",
     {"p.yaml:2:9: error: this is not YAML: the referenced anchor is not defined; look at the indentation (spaces, no "
      "tabs), the quotes and the colons here and just before"}},
    {"a merge key",
     "version: 1\nclasses: {a: {<<: {priority: 1}}}\n",
     {"p.yaml:2:15: error: classes.a: unknown key \"<<\"; known are: priority, kv_guarantee, kv_borrowing_limit, "
      "kv_lending_limit, slot_guarantee, preemptible, max_preemptions, max_sequence_tokens, max_output_tokens, "
      "default_output_tokens, overload, queue, deadline, slo, stop, objectives"}},
    {"a tag",
     "version: 1\ndefault_class: !!str interactive\n",
     {"p.yaml:2:16: error: the tag \"tag:yaml.org,2002:str\" is not taken; leave it out"}},
    {"a key that is a list", "version: 1\n? [a, b]\n: 1\n", {"p.yaml:2:3: error: a key is a name, not a list"}},
    {"a key that is nothing", "version: 1\n~: 1\n", {"p.yaml:2:1: error: a key is a name, not nothing"}},
    {"a tab for indentation",
     "version: 1\nserver:\n\tgrpc: unix:a\n",
     {"p.yaml:3:6: error: this is not YAML: illegal map value; look at the indentation (spaces, no tabs), the quotes "
      "and the colons here and just before"}},
    {"an open bracket",
     "version: 1\nserver: {grpc: unix:a\n",
     {"p.yaml:3:1: error: this is not YAML: end of map flow not found; look at the indentation (spaces, no tabs), the "
      "quotes and the colons here and just before"}},
    {"a colon too many",
     "version: 1\ndefault_class: a: b\n",
     {"p.yaml:2:17: error: this is not YAML: illegal map value; look at the indentation (spaces, no tabs), the quotes "
      "and the colons here and just before"}},
    {"bytes that are not UTF-8",
     "version: 1\n# caf\xE9\n",
     {"p.yaml:2:6: error: the file is not UTF-8 from here on; save it as UTF-8"}},
    {"a control character",
     "version: 1\n# a\x01b\n",
     {"p.yaml:2:4: error: a control character stands here; take it out"}},
};

TEST(YamlTree, RefusesWhatIsNoSingleBoundedDocument) {
  for (const Case& c : kNoYaml) test::ExpectFindings(c, test::ParseFindings(c.yaml));
}

TEST(YamlTree, BoundsSizeDepthAndCountBeforeItBelievesThem) {
  const Case cases[] = {
      {"too large a file",
       std::string(kMaxPolicyBytes + 1, '#'),
       {"p.yaml:1:1: error: the file has 1048577 bytes; at most 1048576"}},
      {"too deep", NestedMaps(17), {"p.yaml:17:17: error: nested more than 16 deep"}},
      {"too many values",
       "a: [" + Repeated("1,", 100'000) + "1]",
       {"p.yaml:1:199999: error: more than 100000 values; make the file smaller"}},
      {"too long a value",
       "a: " + std::string(kMaxScalarBytes + 1, 'x'),
       {"p.yaml:1:4: error: a value of 4097 bytes; at most 4096"}},
  };
  for (const Case& c : cases) test::ExpectFindings(c, test::ParseFindings(c.yaml));
}

TEST(YamlTree, KeepsOrderPlacesAndQuotes) {
  Diagnostics diagnostics("p.yaml");
  const std::optional<YamlNode> root = ParseYaml("b: [1, 'two']\n\u00e9a:\n  c: \n", &diagnostics);
  ASSERT_TRUE(root.has_value());
  ASSERT_EQ(root->kind, YamlNode::Kind::kMap);
  ASSERT_EQ(root->keys.size(), 2u);
  EXPECT_EQ(root->keys[1].text, "\u00e9a");
  EXPECT_EQ(root->keys[1].location.line, 2);
  EXPECT_EQ(root->keys[1].location.column, 1);
  const YamlNode& list = root->children[0];
  ASSERT_EQ(list.children.size(), 2u);
  EXPECT_FALSE(list.children[0].quoted);
  EXPECT_TRUE(list.children[1].quoted);
  EXPECT_EQ(list.children[1].location.column, 8);
  EXPECT_EQ(root->children[1].children[0].kind, YamlNode::Kind::kNull);
}

}  // namespace
}  // namespace berth
