#include "telemetry/metric_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {

MetricStore::MetricStore(LabelRowSets rows) : rows_(std::move(rows)) {
  for (const MetricSpec& spec : MetricTable()) families_.push_back(MakeFamily(spec));
}

void MetricStore::SetRows(RowSet set, LabelRows rows) {
  LabelRows& old = RowsOf(&rows_, set);
  BERTH_CHECK(rows.rows.size() == old.rows.size());
  old = std::move(rows);
}

std::size_t MetricStore::NumCells(const MetricSpec& spec) const {
  return (spec.by_class() ? static_cast<std::size_t>(num_classes_) : 1) *
         (spec.by_tenant() ? static_cast<std::size_t>(num_tenants_) : 1) * rows(spec.rows).rows.size();
}

std::size_t MetricStore::Cell(const MetricSpec& spec, const CellPlace& place) const {
  const int class_slot = spec.by_class() ? place.class_slot : 0;
  const int tenant_slot = spec.by_tenant() ? place.tenant_slot : 0;
  const auto num_rows = std::ssize(rows(spec.rows).rows);
  BERTH_CHECK(class_slot >= 0 && class_slot < num_classes_ && tenant_slot >= 0 && tenant_slot < num_tenants_ &&
              place.row >= 0 && place.row < num_rows);
  const std::int64_t pair = spec.by_tenant() ? std::int64_t{class_slot} * num_tenants_ + tenant_slot : class_slot;
  return static_cast<std::size_t>(pair * num_rows + place.row);
}

MetricStore::Family MetricStore::MakeFamily(const MetricSpec& spec) const {
  Family family;
  const std::size_t cells = NumCells(spec);
  family.values = std::make_unique<std::atomic<double>[]>(cells);
  if (spec.type == MetricType::kHistogram) {
    family.buckets = std::make_unique<std::atomic<std::uint64_t>[]>(cells * (spec.buckets.size() + 1));
  }
  return family;
}

void MetricStore::Add(MetricId id, const CellPlace& place, double delta) {
  families_[static_cast<std::size_t>(id)].values[Cell(SpecOf(id), place)].fetch_add(delta, std::memory_order_relaxed);
}

void MetricStore::Set(MetricId id, const CellPlace& place, double value) {
  families_[static_cast<std::size_t>(id)].values[Cell(SpecOf(id), place)].store(value, std::memory_order_relaxed);
}

void MetricStore::Observe(MetricId id, const CellPlace& place, double value) {
  const MetricSpec& spec = SpecOf(id);
  const Family& family = families_[static_cast<std::size_t>(id)];
  const std::size_t cell = Cell(spec, place);
  // A bucket counts up to its bound, the bound included.
  const auto bound = std::lower_bound(spec.buckets.begin(), spec.buckets.end(), value);
  const std::size_t bucket = static_cast<std::size_t>(bound - spec.buckets.begin());
  family.buckets[cell * (spec.buckets.size() + 1) + bucket].fetch_add(1, std::memory_order_relaxed);
  family.values[cell].fetch_add(value, std::memory_order_relaxed);
}

double MetricStore::Value(MetricId id, const CellPlace& place) const {
  return families_[static_cast<std::size_t>(id)].values[Cell(SpecOf(id), place)].load(std::memory_order_relaxed);
}

HistogramValue MetricStore::Histogram(MetricId id, const CellPlace& place) const {
  const MetricSpec& spec = SpecOf(id);
  const Family& family = families_[static_cast<std::size_t>(id)];
  const std::size_t cell = Cell(spec, place);
  HistogramValue value;
  value.counts.resize(spec.buckets.size() + 1);
  for (std::size_t i = 0; i < value.counts.size(); ++i) {
    value.counts[i] = family.buckets[cell * value.counts.size() + i].load(std::memory_order_relaxed);
  }
  value.sum = family.values[cell].load(std::memory_order_relaxed);
  return value;
}

void MetricStore::Resize(std::span<const int> class_from, std::span<const int> tenant_from) {
  MetricStore resized(rows_);
  resized.num_classes_ = static_cast<int>(class_from.size());
  resized.num_tenants_ = static_cast<int>(tenant_from.size());
  for (const MetricSpec& spec : MetricTable()) {
    const auto index = static_cast<std::size_t>(spec.id);
    Family& to = resized.families_[index] = resized.MakeFamily(spec);
    const Family& from = families_[index];
    const int classes = spec.by_class() ? resized.num_classes_ : 1;
    const int tenants = spec.by_tenant() ? resized.num_tenants_ : 1;
    const auto num_rows = static_cast<int>(rows(spec.rows).rows.size());
    for (int c = 0; c < classes; ++c) {
      const int old_class = spec.by_class() ? class_from[static_cast<std::size_t>(c)] : 0;
      for (int t = 0; t < tenants; ++t) {
        const int old_tenant = spec.by_tenant() ? tenant_from[static_cast<std::size_t>(t)] : 0;
        if (old_class < 0 || old_tenant < 0) continue;
        for (int row = 0; row < num_rows; ++row) {
          const std::size_t new_cell = resized.Cell(spec, {c, t, row});
          const std::size_t old_cell = Cell(spec, {old_class, old_tenant, row});
          to.values[new_cell].store(from.values[old_cell].load(std::memory_order_relaxed), std::memory_order_relaxed);
          if (spec.type != MetricType::kHistogram) continue;
          const std::size_t width = spec.buckets.size() + 1;
          for (std::size_t i = 0; i < width; ++i) {
            to.buckets[new_cell * width + i].store(from.buckets[old_cell * width + i].load(std::memory_order_relaxed),
                                                   std::memory_order_relaxed);
          }
        }
      }
    }
  }
  *this = std::move(resized);
}

}  // namespace berth
