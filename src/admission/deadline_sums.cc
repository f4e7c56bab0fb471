#include "admission/deadline_sums.h"

#include "base/check.h"

namespace berth {
namespace {

std::uint64_t Rank(RequestKey request) {
  std::uint64_t x = static_cast<std::uint64_t>(request) * 0x9e3779b97f4a7c15ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

}  // namespace

// Everything below `key` and everything from it on.
std::pair<std::int32_t, std::int32_t> DeadlineSums::Split(std::int32_t root, const Key& key) {
  if (root < 0) return {-1, -1};
  if (at(root).key < key) {
    const auto [low, high] = Split(at(root).right, key);
    at(root).right = low;
    Update(root);
    return {root, high};
  }
  const auto [low, high] = Split(at(root).left, key);
  at(root).left = high;
  Update(root);
  return {low, root};
}

std::int32_t DeadlineSums::Merge(std::int32_t left, std::int32_t right) {
  if (left < 0) return right;
  if (right < 0) return left;
  if (at(left).rank > at(right).rank) {
    at(left).right = Merge(at(left).right, right);
    Update(left);
    return left;
  }
  at(right).left = Merge(left, at(right).left);
  Update(right);
  return right;
}

void DeadlineSums::Insert(const Key& key, double weight) {
  if (spare_.empty()) {
    spare_.push_back(static_cast<std::int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const std::int32_t node = spare_.back();
  spare_.pop_back();
  at(node) = {key, weight, weight, Rank(key.second), -1, -1};
  const auto [low, high] = Split(root_, key);
  root_ = Merge(Merge(low, node), high);
}

void DeadlineSums::Erase(const Key& key) {
  const auto [low, rest] = Split(root_, key);
  const auto [node, high] = Split(rest, {key.first, key.second + 1});
  BERTH_CHECK(node >= 0 && at(node).left < 0 && at(node).right < 0);
  spare_.push_back(node);
  root_ = Merge(low, high);
}

double DeadlineSums::SumBefore(const Key& key) const {
  double sum = 0.0;
  for (std::int32_t n = root_; n >= 0;) {
    if (at(n).key < key) {
      sum += at(n).weight + SumOf(at(n).left);
      n = at(n).right;
    } else {
      n = at(n).left;
    }
  }
  return sum;
}

}  // namespace berth
