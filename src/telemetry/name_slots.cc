#include "telemetry/name_slots.h"

#include <unordered_map>
#include <utility>

namespace berth {

int NameSlots::SlotOf(const std::string& name) const {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return static_cast<int>(i);
  }
  return -1;
}

bool NameSlots::has(const std::string& name) const { return SlotOf(name) >= 0; }

std::vector<int> NameSlots::Assign(std::span<const std::string> names_by_id) {
  std::unordered_map<std::string, int> old_slots;
  for (std::size_t i = 0; i < names_.size(); ++i) old_slots.emplace(names_[i], static_cast<int>(i));

  std::unordered_map<std::string, int> new_slots = {{kOtherName, 0}};
  std::vector<std::string> names = {kOtherName};
  std::vector<int> from = {0};
  slot_of_id_.clear();
  for (const std::string& name : names_by_id) {
    if (name.empty()) {
      slot_of_id_.push_back(0);
      continue;
    }
    const auto [found, is_new] = new_slots.emplace(name, static_cast<int>(names.size()));
    slot_of_id_.push_back(found->second);
    if (!is_new) continue;
    names.push_back(name);
    const auto old = old_slots.find(name);
    from.push_back(old == old_slots.end() ? -1 : old->second);
  }
  names_ = std::move(names);
  return from;
}

}  // namespace berth
