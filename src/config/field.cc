#include "config/field.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace berth {
namespace {

// Each enumeration's words, in the order of its values. An absent KvDtype is auto.
constexpr std::array<std::string_view, 3> kOverloadWords = {"reject", "queue", "shed_lowest"};
constexpr std::array<std::string_view, 3> kRequireWords = {"first_token", "useful_output", "full_output"};
constexpr std::array<std::string_view, 3> kStopWords = {"none", "hold", "drain"};
constexpr std::array<std::string_view, 2> kReloadWords = {"watch", "signal"};
constexpr std::array<std::string_view, 3> kBackendWords = {"auto", "cpu", "cuda"};
constexpr std::array<std::string_view, 4> kDtypeWords = {"auto", "bf16", "int8", "float32"};
constexpr std::array<std::optional<KvDtype>, 4> kDtypes = {std::nullopt, KvDtype::kBf16, KvDtype::kInt8,
                                                           KvDtype::kFloat32};

struct Words {
  std::span<const std::string_view> operator()(Overload*) const { return kOverloadWords; }
  std::span<const std::string_view> operator()(DeadlineRequirement*) const { return kRequireWords; }
  std::span<const std::string_view> operator()(ClassStop*) const { return kStopWords; }
  std::span<const std::string_view> operator()(ReloadMode*) const { return kReloadWords; }
  std::span<const std::string_view> operator()(BackendChoice*) const { return kBackendWords; }
  std::span<const std::string_view> operator()(std::optional<KvDtype>*) const { return kDtypeWords; }
  template <typename Other>
  std::span<const std::string_view> operator()(Other*) const {
    return {};
  }
};

template <typename T>
concept Enumeration = std::is_enum_v<T>;

struct Getter {
  template <Enumeration E>
  std::size_t operator()(E* field) const {
    return static_cast<std::size_t>(*field);
  }
  std::size_t operator()(std::optional<KvDtype>* field) const {
    return static_cast<std::size_t>(std::find(kDtypes.begin(), kDtypes.end(), *field) - kDtypes.begin());
  }
  template <typename Other>
  std::size_t operator()(Other*) const {
    return 0;
  }
};

struct Setter {
  std::size_t word;
  template <Enumeration E>
  void operator()(E* field) const {
    *field = static_cast<E>(word);
  }
  void operator()(std::optional<KvDtype>* field) const { *field = kDtypes[word]; }
  template <typename Other>
  void operator()(Other*) const {}
};

std::string Joined(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return "[" + joined + "]";
}

struct Formatter {
  const Rule& rule;

  std::string Number(std::int64_t value) const {
    switch (rule.kind) {
      case ValueKind::kShare:
        return FormatShare(value);
      case ValueKind::kBytes:
        return FormatByteSize(value);
      default:
        return std::to_string(value);
    }
  }
  std::string Absent() const { return std::string(rule.word); }

  std::string operator()(const bool* field) const { return *field ? "true" : "false"; }
  std::string operator()(const std::int32_t* field) const {
    return *field == 0 && !rule.word.empty() ? Absent() : Number(*field);
  }
  std::string operator()(const std::int64_t* field) const { return Number(*field); }
  std::string operator()(const std::optional<std::int64_t>* field) const {
    return field->has_value() ? Number(**field) : Absent();
  }
  std::string operator()(const double* field) const { return absl::StrCat(*field); }
  std::string operator()(const Duration* field) const { return FormatDuration(*field); }
  std::string operator()(const std::optional<Duration>* field) const {
    return field->has_value() ? FormatDuration(**field) : Absent();
  }
  std::string operator()(const Quantity* field) const { return FormatQuantity(*field); }
  std::string operator()(const std::optional<Quantity>* field) const {
    return field->has_value() ? FormatQuantity(**field) : Absent();
  }
  std::string operator()(const std::string* field) const { return *field; }
  std::string operator()(const std::vector<std::string>* field) const { return Joined(*field); }
  std::string operator()(const std::optional<std::vector<std::string>>* field) const {
    return field->has_value() ? Joined(**field) : Absent();
  }
  std::string operator()(const std::vector<ApiKeySettings>* field) const {
    // Eight digits tell keys apart without handing out what a dictionary could be run against.
    std::vector<std::string> ids;
    for (const ApiKeySettings& key : *field) {
      ids.push_back(absl::StrCat(key.id, " ", key.sha256.substr(0, 8), key.admin ? " admin" : ""));
    }
    return Joined(ids);
  }
  std::string operator()(std::optional<KvDtype>* field) const { return Word(field); }
  template <Enumeration E>
  std::string operator()(E* field) const {
    return Word(field);
  }
  static std::string Word(const Field& field) { return std::string(WordsOf(field)[GetWord(field)]); }
};

}  // namespace

std::span<const std::string_view> WordsOf(const Field& field) { return std::visit(Words(), field); }
std::size_t GetWord(const Field& field) { return std::visit(Getter(), field); }
void SetWord(const Field& field, std::size_t word) { std::visit(Setter{word}, field); }

std::string FormatField(const Rule& rule, const Field& field) { return std::visit(Formatter{rule}, field); }

}  // namespace berth
