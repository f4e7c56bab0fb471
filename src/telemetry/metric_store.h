// The numbers behind the metric table: for each metric one cell per class, tenant and row of further labels.
//
// prometheus-cpp's own counters and histograms are not used for this: a series is found by a map of its labels, each
// Observe of a histogram takes a lock, and series that follow a policy's classes and tenants would have to be added and
// removed one by one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "telemetry/label_rows.h"
#include "telemetry/metric_table.h"

namespace berth {

// Slots count classes and tenants as they are shown; a metric that does not tell them apart ignores them.
struct CellPlace {
  int class_slot = 0;
  int tenant_slot = 0;
  int row = 0;
};

struct HistogramValue {
  std::vector<std::uint64_t> counts;  // by bucket, not summed up; the last one is beyond every bound
  double sum = 0.0;
};

// Add, Set, Observe and what reads are thread-safe among each other, and lock-free; Resize, and changes of the rows,
// need everybody else kept out. A reader sees each number right, not all of one moment.
class MetricStore {
 public:
  explicit MetricStore(LabelRowSets rows);

  int num_classes() const { return num_classes_; }
  int num_tenants() const { return num_tenants_; }
  const LabelRows& rows(RowSet set) const { return rows_[static_cast<std::size_t>(set)]; }
  // REQUIRES: as many rows as before.
  void SetRows(RowSet set, LabelRows rows);

  void Add(MetricId id, const CellPlace& place, double delta);
  void Set(MetricId id, const CellPlace& place, double value);
  void Observe(MetricId id, const CellPlace& place, double value);

  double Value(MetricId id, const CellPlace& place) const;
  HistogramValue Histogram(MetricId id, const CellPlace& place) const;

  // From now on there are class_from.size() classes, of which class i has the numbers that class class_from[i] had, or
  // zeros for -1; likewise tenants.
  void Resize(std::span<const int> class_from, std::span<const int> tenant_from);

 private:
  struct Family {
    std::unique_ptr<std::atomic<double>[]> values;          // sums, of a histogram
    std::unique_ptr<std::atomic<std::uint64_t>[]> buckets;  // of a histogram: spec.buckets.size() + 1 a cell
  };

  std::size_t NumCells(const MetricSpec& spec) const;
  std::size_t Cell(const MetricSpec& spec, const CellPlace& place) const;
  Family MakeFamily(const MetricSpec& spec) const;

  LabelRowSets rows_;
  int num_classes_ = 1;
  int num_tenants_ = 1;
  std::vector<Family> families_;  // by MetricId
};

}  // namespace berth
