// Which label value stands for which class or tenant.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace berth {

// What has no name of its own is counted together.
inline constexpr char kOtherName[] = "other";

// A slot is a label value with its series; slot 0 is `other`. Ids may share a slot.
class NameSlots {
 public:
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int slot) const { return names_[static_cast<std::size_t>(slot)]; }
  bool has(const std::string& name) const;

  // 0 for ids that have no name.
  int Of(std::int64_t id) const {
    return id >= 0 && id < std::ssize(slot_of_id_) ? slot_of_id_[static_cast<std::size_t>(id)] : 0;
  }

  // From now on id i is called names_by_id[i], where empty means `other`. Answers with the slots that the new ones had
  // before, -1 for new names.
  std::vector<int> Assign(std::span<const std::string> names_by_id);

 private:
  int SlotOf(const std::string& name) const;  // -1 = none

  std::vector<std::string> names_ = {kOtherName};
  std::vector<int> slot_of_id_;
};

}  // namespace berth
