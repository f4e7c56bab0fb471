// Running sums over waiting requests in order of deadline.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "berth/clock.h"
#include "berth/units.h"

namespace berth {

// A treap keyed by (deadline, request) that keeps subtree sums: insert, erase and the sum before a key take O(log n).
// Its shape follows from the keys alone.
class DeadlineSums {
 public:
  using Key = std::pair<TimePoint, RequestKey>;

  // REQUIRES: the key is not there.
  void Insert(const Key& key, double weight);
  // REQUIRES: the key is there.
  void Erase(const Key& key);
  // Of all entries with a smaller key.
  double SumBefore(const Key& key) const;

 private:
  struct Node {
    Key key;
    double weight = 0.0;
    double sum = 0.0;
    std::uint64_t rank = 0;  // heap order: a hash of the key
    std::int32_t left = -1;
    std::int32_t right = -1;
  };

  Node& at(std::int32_t n) { return nodes_[static_cast<std::size_t>(n)]; }
  const Node& at(std::int32_t n) const { return nodes_[static_cast<std::size_t>(n)]; }
  double SumOf(std::int32_t n) const { return n < 0 ? 0.0 : at(n).sum; }
  void Update(std::int32_t n) { at(n).sum = at(n).weight + SumOf(at(n).left) + SumOf(at(n).right); }
  std::pair<std::int32_t, std::int32_t> Split(std::int32_t root, const Key& key);
  std::int32_t Merge(std::int32_t left, std::int32_t right);

  std::vector<Node> nodes_;
  std::vector<std::int32_t> spare_;
  std::int32_t root_ = -1;
};

}  // namespace berth
