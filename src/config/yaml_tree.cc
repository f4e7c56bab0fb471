#include "config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace berth {
namespace {

Location At(const YAML::Mark& mark) {
  if (mark.is_null()) return {};
  return {mark.line + 1, mark.column + 1};
}

// Ends the parse from within an event.
struct Refused {
  Location location;
  std::string message;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  YamlNode& root() { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw Refused{At(mark), "the file holds several documents; keep one, and take out the line '---' between them"};
    }
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& /*name*/) override { RefuseAnchor(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { RefuseAnchor(mark); }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Put(MakeNode(YamlNode::Kind::kNull, mark, "?"));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& value) override {
    if (value.size() > kMaxScalarBytes) {
      throw Refused{At(mark), absl::StrCat("a value of ", value.size(), " bytes; at most ", kMaxScalarBytes)};
    }
    YamlNode node = MakeNode(YamlNode::Kind::kScalar, mark, tag);
    node.text = value;
    node.quoted = tag == "!";
    Put(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(MakeNode(YamlNode::Kind::kList, mark, tag));
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(MakeNode(YamlNode::Kind::kMap, mark, tag));
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

 private:
  [[noreturn]] static void RefuseAnchor(const YAML::Mark& mark) {
    throw Refused{At(mark), "anchors and aliases (& and *) are not taken; write the value out"};
  }

  YamlNode MakeNode(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{At(mark), absl::StrCat("the tag ", Shown(tag), " is not taken; leave it out")};
    }
    if (++nodes_ > kMaxYamlNodes) {
      throw Refused{At(mark), absl::StrCat("more than ", kMaxYamlNodes, " values; make the file smaller")};
    }
    YamlNode node;
    node.kind = kind;
    node.location = At(mark);
    return node;
  }

  void Open(YamlNode node) {
    if (static_cast<int>(open_.size()) >= kMaxYamlDepth) {
      throw Refused{node.location, absl::StrCat("nested more than ", kMaxYamlDepth, " deep")};
    }
    open_.push_back(std::move(node));
  }

  void Close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    Put(std::move(node));
  }

  void Put(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    const bool is_key = parent.kind == YamlNode::Kind::kMap && parent.keys.size() == parent.children.size();
    if (is_key && node.kind != YamlNode::Kind::kScalar) {
      throw Refused{node.location, absl::StrCat("a key is a name, not ", KindName(node.kind))};
    }
    (is_key ? parent.keys : parent.children).push_back(std::move(node));
  }

  YamlNode root_;
  std::vector<YamlNode> open_;  // from the outside in
  int nodes_ = 0;
  int documents_ = 0;
};

// Line and column of a byte. Columns count bytes, as the parser's do.
Location LocationOf(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(offset - line_start) + 1};
}

bool CheckText(std::string_view text, Diagnostics* diagnostics) {
  if (text.size() > kMaxPolicyBytes) {
    diagnostics->Error("", absl::StrCat("the file has ", text.size(), " bytes; at most ", kMaxPolicyBytes));
    return false;
  }
  if (const std::optional<std::size_t> bad = FindInvalidUtf8(text)) {
    diagnostics->ErrorAt(LocationOf(text, *bad), "", "the file is not UTF-8 from here on; save it as UTF-8");
    return false;
  }
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F;
  });
  if (control != text.end()) {
    diagnostics->ErrorAt(LocationOf(text, static_cast<std::size_t>(control - text.begin())), "",
                         "a control character stands here; take it out");
    return false;
  }
  return true;
}

}  // namespace

const char* KindName(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return "one value";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kList:
      return "a list";
  }
  return "?";
}

std::optional<YamlNode> ParseYaml(std::string_view text, Diagnostics* diagnostics) {
  if (!CheckText(text, diagnostics)) return std::nullopt;
  TreeBuilder builder;
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder)) {
      diagnostics->Error("", "the file is empty; it begins with 'version: 1'");
      return std::nullopt;
    }
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refused& refused) {
    diagnostics->ErrorAt(refused.location, "", refused.message);
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    diagnostics->ErrorAt(
        At(error.mark), "",
        absl::StrCat("this is not YAML: ", error.msg,
                     "; look at the indentation (spaces, no tabs), the quotes and the colons here and just before"));
    return std::nullopt;
  }
  return std::move(builder.root());
}

}  // namespace berth
