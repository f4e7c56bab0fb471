#include "config/policy_diff.h"

#include <map>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace berth {
namespace {

// The same keys in the same places of two configurations. Fields are reached through pointers that may write; the
// copies make that harmless.
class Comparison {
 public:
  Comparison(ServerConfig before, ServerConfig after) : before_(std::move(before)), after_(std::move(after)) {}

  std::vector<Change> Run() {
    for (const Key& key : PolicyKeys()) {
      if (!key.path.starts_with("classes.") && !key.path.starts_with("tenants.") &&
          key.path.find('*') == std::string_view::npos) {
        Compare(key, std::string(key.path), {.config = &before_}, {.config = &after_});
      }
    }
    CompareNamed("classes.", &ServerConfig::classes, &Scope::service_class,
                 {"classes.", "scheduler.prefill_min_share."});
    CompareNamed("tenants.", &ServerConfig::tenants, &Scope::tenant, {"tenants."});
    return std::move(changes_);
  }

 private:
  void Compare(const Key& key, std::string path, const Scope& before, const Scope& after) {
    std::string old_value = FormatField(key.rule, key.field(before));
    std::string new_value = FormatField(key.rule, key.field(after));
    if (old_value == new_value) return;
    changes_.push_back({std::move(path), std::move(old_value), std::move(new_value), key.effect});
  }

  template <typename Settings>
  void CompareNamed(const std::string& section, std::vector<Settings> ServerConfig::*list, Settings* Scope::*member,
                    const std::vector<std::string_view>& prefixes) {
    std::map<std::string_view, Settings*> old_by_name;
    for (Settings& settings : before_.*list) old_by_name.emplace(settings.name, &settings);
    std::set<std::string_view> kept;
    for (Settings& settings : after_.*list) {
      const auto old = old_by_name.find(settings.name);
      if (old == old_by_name.end()) {
        changes_.push_back({section + settings.name, "", "added", Effect::kLive});
        continue;
      }
      kept.insert(settings.name);
      Scope before;
      before.*member = old->second;
      Scope after;
      after.*member = &settings;
      for (const Key& key : PolicyKeys()) {
        for (const std::string_view prefix : prefixes) {
          if (key.path.starts_with(prefix) && key.path.find('*') != std::string_view::npos) {
            Compare(key, NamedPath(key.path, settings.name), before, after);
          }
        }
      }
    }
    for (const Settings& settings : before_.*list) {
      if (!kept.contains(settings.name)) changes_.push_back({section + settings.name, "removed", "", Effect::kLive});
    }
  }

  ServerConfig before_;
  ServerConfig after_;
  std::vector<Change> changes_;
};

}  // namespace

std::vector<Change> CompareConfigs(const ServerConfig& before, const ServerConfig& after) {
  return Comparison(before, after).Run();
}

std::string FormatChange(const Change& change) {
  if (change.old_value.empty() || change.new_value.empty()) {
    const std::string& value = change.old_value.empty() ? change.new_value : change.old_value;
    return absl::StrCat(change.key, ": ", value);
  }
  return absl::StrCat(change.key, ": ", change.old_value, " -> ", change.new_value);
}

void RefuseRestartKeys(const std::vector<Change>& changes, Diagnostics* diagnostics) {
  for (const Change& change : changes) {
    if (change.effect == Effect::kLive) continue;
    const auto shown = [](const std::string& value) { return value.empty() ? std::string("nothing") : value; };
    diagnostics->Error(change.key,
                       absl::StrCat("changed from ", shown(change.old_value), " to ", shown(change.new_value),
                                    ", which takes a restart; put it back, or restart the server"));
  }
}

}  // namespace berth
