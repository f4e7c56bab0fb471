#include "config/read_value.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "config/size.h"
#include "config/suggestions.h"

namespace berth {
namespace {

constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

std::string OrWord(const Rule& rule) { return rule.word.empty() ? "" : absl::StrCat(", or ", std::string(rule.word)); }

std::string FormatBound(const Rule& rule, std::int64_t bound) {
  switch (rule.kind) {
    case ValueKind::kDuration:
      return FormatDuration(Duration(bound));
    case ValueKind::kShare:
      return FormatShare(bound);
    case ValueKind::kBytes:
      return FormatByteSize(bound);
    default:
      return std::to_string(bound);
  }
}

// "blocks (128), a size (2GiB) or a share (40%)"
std::string Units(const Rule& rule) {
  std::vector<std::string_view> units;
  if ((rule.units & kInBlocks) != 0) units.push_back("blocks (128)");
  if ((rule.units & kInBytes) != 0) units.push_back("a size (2GiB)");
  if ((rule.units & kInShares) != 0) units.push_back("a share (40%)");
  std::string text;
  for (std::size_t i = 0; i < units.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == units.size() ? " or " : ", ", std::string(units[i]));
  }
  return text;
}

// Empties an optional, or sets a field that cannot be absent to 0.
struct SetAbsent {
  template <typename T>
  void operator()(std::optional<T>* field) const {
    field->reset();
  }
  void operator()(std::int32_t* field) const { *field = 0; }
  template <typename Other>
  void operator()(Other*) const {}
};

struct SetNumber {
  std::int64_t value;
  void operator()(std::int32_t* field) const { *field = static_cast<std::int32_t>(value); }
  void operator()(std::int64_t* field) const { *field = value; }
  void operator()(std::optional<std::int64_t>* field) const { *field = value; }
  void operator()(Duration* field) const { *field = Duration(value); }
  void operator()(std::optional<Duration>* field) const { *field = Duration(value); }
  template <typename Other>
  void operator()(Other*) const {}
};

struct SetQuantity {
  Quantity value;
  void operator()(Quantity* field) const { *field = value; }
  void operator()(std::optional<Quantity>* field) const { *field = value; }
  template <typename Other>
  void operator()(Other*) const {}
};

struct SetTexts {
  std::vector<std::string>& texts;
  void operator()(std::vector<std::string>* field) const { *field = std::move(texts); }
  void operator()(std::optional<std::vector<std::string>>* field) const { *field = std::move(texts); }
  template <typename Other>
  void operator()(Other*) const {}
};

// Digits with at most a sign, no leading zeros: what looks octal is not guessed at.
std::optional<std::int64_t> ReadWhole(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Reader {
 public:
  Reader(const Rule& rule, const Field& field, const YamlNode& node, std::string path, Diagnostics* diagnostics)
      : rule_(rule), field_(field), node_(node), path_(std::move(path)), diagnostics_(diagnostics) {}

  void Read() {
    const bool list = rule_.kind == ValueKind::kTexts || rule_.kind == ValueKind::kApiKeys;
    if (node_.kind == YamlNode::Kind::kNull) {
      return Fault("has no value; give " + Wanted(rule_, field_) + ", or take the key out");
    }
    const bool is_word = node_.kind == YamlNode::Kind::kScalar && !rule_.word.empty() && node_.text == rule_.word;
    if (is_word) return std::visit(SetAbsent(), field_);
    if (node_.kind != (list ? YamlNode::Kind::kList : YamlNode::Kind::kScalar)) {
      return Fault(absl::StrCat("is ", KindName(node_.kind), "; give ", Wanted(rule_, field_)));
    }
    if (rule_.kind == ValueKind::kTexts) return ReadTexts();
    if (rule_.kind == ValueKind::kApiKeys) return ReadApiKeys();
    ReadScalar();
  }

 private:
  void Fault(std::string message) { diagnostics_->Error(path_, std::move(message)); }
  void NotWanted() { Fault(absl::StrCat(Shown(node_.text), " is not ", Wanted(rule_, field_))); }

  void ReadScalar() {
    switch (rule_.kind) {
      case ValueKind::kSwitch:
        return ReadSwitch();
      case ValueKind::kWhole:
        return ReadNumber();
      case ValueKind::kReal:
        return ReadReal();
      case ValueKind::kDuration:
        return ReadParsed(ParseDuration(node_.text));
      case ValueKind::kShare:
        return ReadParsed(ParseShare(node_.text));
      case ValueKind::kBytes:
        return ReadParsed(ParseByteSize(node_.text));
      case ValueKind::kQuantity:
        return ReadQuantity();
      case ValueKind::kWord:
        return ReadWord();
      default:
        return ReadText();
    }
  }

  bool Unquoted() {
    if (node_.quoted) Fault(absl::StrCat(Shown(node_.text), " is a text; take the quotes away"));
    return !node_.quoted;
  }

  void ReadSwitch() {
    if (!Unquoted()) return;
    if (node_.text != "true" && node_.text != "false") return NotWanted();
    **std::get_if<bool*>(&field_) = node_.text == "true";
  }

  void ReadNumber() {
    if (!Unquoted()) return;
    const std::optional<std::int64_t> value = ReadWhole(node_.text);
    if (!value || *value < rule_.min || *value > rule_.max) return NotWanted();
    std::visit(SetNumber{*value}, field_);
  }

  void ReadReal() {
    if (!Unquoted()) return;
    double value = 0;
    const char* const end = node_.text.data() + node_.text.size();
    const auto [stop, error] = std::from_chars(node_.text.data(), end, value, std::chars_format::fixed);
    const bool in_range = value > static_cast<double>(rule_.min) && value <= static_cast<double>(rule_.max);
    if (error != std::errc() || stop != end || !std::isfinite(value) || !in_range) return NotWanted();
    **std::get_if<double*>(&field_) = value;
  }

  static std::int64_t Count(std::int64_t value) { return value; }
  static std::int64_t Count(Duration value) { return value.count(); }

  template <typename T>
  void ReadParsed(const absl::StatusOr<T>& parsed) {
    if (!parsed.ok()) return Fault(std::string(parsed.status().message()));
    const std::int64_t value = Count(*parsed);
    if (value < rule_.min || value > rule_.max) return NotWanted();
    std::visit(SetNumber{value}, field_);
  }

  void ReadQuantity() {
    const absl::StatusOr<Quantity> parsed = ParseQuantity(node_.text);
    if (!parsed.ok()) {
      const bool number = node_.text.find_first_of("0123456789") == 0;
      return number ? Fault(std::string(parsed.status().message())) : NotWanted();
    }
    const Quantity value = *parsed;
    const bool blocks = (rule_.units & kInBlocks) != 0;
    if (value.amount == 0 && !blocks) return NotWanted();
    if (value.unit == QuantityUnit::kBlocks && !blocks) {
      return Fault(absl::StrCat(Shown(node_.text), " has no unit; give ", Units(rule_)));
    }
    if (value.unit == QuantityUnit::kShare && value.amount > kWholeMillionths) {
      return Fault(absl::StrCat(Shown(node_.text), " is more than all of it; at most 100%"));
    }
    if (value.unit == QuantityUnit::kBlocks && value.amount > kMostBlocks) {
      return Fault(absl::StrCat(Shown(node_.text), " is more blocks than a pool can have; at most ", kMostBlocks));
    }
    std::visit(SetQuantity{value}, field_);
  }

  void ReadWord() {
    const std::span<const std::string_view> words = WordsOf(field_);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (node_.text == words[i]) return SetWord(field_, i);
    }
    NotWanted();
  }

  void ReadText() {
    if (const std::string_view fault = TextFault(rule_.text, node_.text); !fault.empty()) {
      // What stands for a hash by mistake may be the secret itself.
      const std::string shown = rule_.text == TextKind::kSha256 ? "the value" : Shown(node_.text);
      return Fault(absl::StrCat(shown, " ", std::string(fault)));
    }
    **std::get_if<std::string*>(&field_) = node_.text;
  }

  // Where the item stands; its findings are told there.
  std::string LocateItem(std::size_t index) {
    std::string path = absl::StrCat(path_, "[", index, "]");
    diagnostics_->Locate(path, node_.children[index].location);
    return path;
  }

  void ReadTexts() {
    std::vector<std::string> texts;
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < node_.children.size(); ++i) {
      const YamlNode& item = node_.children[i];
      const std::string path = LocateItem(i);
      if (item.kind != YamlNode::Kind::kScalar) {
        diagnostics_->Error(path, absl::StrCat("is ", KindName(item.kind), "; a list of texts is wanted"));
      } else if (const std::string_view fault = TextFault(rule_.text, item.text); !fault.empty()) {
        diagnostics_->Error(path, absl::StrCat(Shown(item.text), " ", std::string(fault)));
      } else if (!seen.insert(item.text).second) {
        diagnostics_->Error(path, absl::StrCat(Shown(item.text), " is there twice; keep one"));
      } else {
        texts.push_back(item.text);
      }
    }
    std::visit(SetTexts{texts}, field_);
  }

  void ReadApiKeys() {
    std::vector<ApiKeySettings>& keys = **std::get_if<std::vector<ApiKeySettings>*>(&field_);
    keys.clear();
    for (std::size_t i = 0; i < node_.children.size(); ++i) ReadApiKey(node_.children[i], LocateItem(i), &keys);
  }

  void ReadApiKey(const YamlNode& item, const std::string& path, std::vector<ApiKeySettings>* keys) {
    static constexpr std::string_view kNames[] = {"id", "sha256", "admin"};
    if (item.kind != YamlNode::Kind::kMap) {
      return diagnostics_->Error(path, absl::StrCat("is ", KindName(item.kind), "; give {id: NAME, sha256: HASH}"));
    }
    ApiKeySettings key;
    const Rule id_rule{.kind = ValueKind::kText, .text = TextKind::kKeyId};
    const Rule hash_rule{.kind = ValueKind::kText, .text = TextKind::kSha256};
    const int errors = diagnostics_->errors();
    for (std::size_t i = 0; i < item.keys.size(); ++i) {
      const std::string& name = item.keys[i].text;
      const std::string key_path = absl::StrCat(path, ".", name);
      if (name != "id" && name != "sha256" && name != "admin") {
        diagnostics_->ErrorAt(item.keys[i].location, path,
                              absl::StrCat("unknown key ", Shown(name), NearestHint(name, kNames)));
        continue;
      }
      if (diagnostics_->Given(key_path)) {
        diagnostics_->ErrorAt(item.keys[i].location, key_path, "is there twice; keep one");
        continue;
      }
      diagnostics_->Locate(key_path, item.keys[i].location);
      const Rule rule = name == "id" ? id_rule : name == "sha256" ? hash_rule : Rule{};
      const Field field = name == "id" ? Field(&key.id) : name == "sha256" ? Field(&key.sha256) : Field(&key.admin);
      ReadValue(rule, field, item.children[i], key_path, diagnostics_);
    }
    for (const char* name : {"id", "sha256"}) {
      if (!diagnostics_->Given(absl::StrCat(path, ".", name))) {
        diagnostics_->Error(path, absl::StrCat(name, " is missing; give {id: NAME, sha256: HASH}"));
      }
    }
    if (diagnostics_->errors() == errors) keys->push_back(std::move(key));
  }

  const Rule& rule_;
  const Field& field_;
  const YamlNode& node_;
  const std::string path_;
  Diagnostics* const diagnostics_;
};

}  // namespace

std::string Wanted(const Rule& rule, const Field& field) {
  const auto range = [&](const char* what) {
    return absl::StrCat(what, " from ", FormatBound(rule, rule.min), " to ", FormatBound(rule, rule.max), OrWord(rule));
  };
  switch (rule.kind) {
    case ValueKind::kSwitch:
      return "true or false";
    case ValueKind::kWhole:
      return range("a whole number");
    case ValueKind::kReal:
      return absl::StrCat("a number above ", rule.min, " and at most ", rule.max);
    case ValueKind::kDuration:
      return range("a time");
    case ValueKind::kShare:
      return range("a share");
    case ValueKind::kBytes:
      return range("a size");
    case ValueKind::kQuantity:
      return Units(rule) + OrWord(rule);
    case ValueKind::kWord: {
      std::string words;
      for (const std::string_view word : WordsOf(field)) {
        absl::StrAppend(&words, words.empty() ? "" : ", ", std::string(word));
      }
      return "one of: " + words;
    }
    case ValueKind::kText:
      return "a text";
    case ValueKind::kTexts:
      return "a list of texts, such as [a, b]";
    case ValueKind::kApiKeys:
      return "a list of {id: NAME, sha256: HASH}";
  }
  return "";
}

void ReadValue(const Rule& rule, const Field& field, const YamlNode& node, const std::string& path,
               Diagnostics* diagnostics) {
  Reader(rule, field, node, path, diagnostics).Read();
}

}  // namespace berth
