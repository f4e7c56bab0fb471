#include "telemetry/exposition.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "telemetry/label_rows.h"

namespace berth {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

class FamilyMaker {
 public:
  FamilyMaker(const MetricStore& store, const ExpositionNames& names, const MetricSpec& spec)
      : store_(store), names_(names), spec_(spec) {}

  MetricFamily Make() {
    family_.name = spec_.name;
    family_.help = spec_.help;
    family_.type = TypeOf(spec_.type);
    const int classes = spec_.by_class() ? store_.num_classes() : 1;
    const int tenants = spec_.by_tenant() ? store_.num_tenants() : 1;
    const auto rows = static_cast<int>(store_.rows(spec_.rows).rows.size());
    for (int c = 0; c < classes; ++c) {
      if (spec_.by_class() && names_.hidden_classes[static_cast<std::size_t>(c)]) continue;
      for (int t = 0; t < tenants; ++t) {
        for (int row = 0; row < rows; ++row) AddSeries({c, t, row});
      }
    }
    return std::move(family_);
  }

 private:
  // Not shown before it moves.
  bool IsQuiet(const CellPlace& place) const {
    if (spec_.by_tenant() && names_.quiet_tenants[static_cast<std::size_t>(place.tenant_slot)]) return true;
    if (spec_.rows == RowSet::kOutcomeReason && IsUnexpectedRow(place.row)) return true;
    if (!spec_.by_class() || place.class_slot != 0) return false;
    return spec_.rows != RowSet::kOutcomeReason || !IsRejectionRow(place.row);
  }

  void AddSeries(const CellPlace& place) {
    ClientMetric metric;
    if (spec_.type == MetricType::kHistogram) {
      FillHistogram(place, &metric.histogram);
      if (metric.histogram.sample_count == 0 && IsQuiet(place)) return;
    } else {
      const double value = store_.Value(spec_.id, place);
      if (std::isnan(value) || (value == 0.0 && IsQuiet(place))) return;
      (spec_.type == MetricType::kCounter ? metric.counter.value : metric.gauge.value) = value;
    }
    FillLabels(place, &metric.label);
    family_.metric.push_back(std::move(metric));
  }

  void FillHistogram(const CellPlace& place, ClientMetric::Histogram* histogram) const {
    const HistogramValue value = store_.Histogram(spec_.id, place);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < value.counts.size(); ++i) {
      count += value.counts[i];
      const double bound = i < spec_.buckets.size() ? spec_.buckets[i] : std::numeric_limits<double>::infinity();
      histogram->bucket.push_back({.cumulative_count = count, .upper_bound = bound});
    }
    histogram->sample_count = count;
    histogram->sample_sum = value.sum;
  }

  void FillLabels(const CellPlace& place, std::vector<ClientMetric::Label>* labels) const {
    if (spec_.has_model_label()) labels->push_back({"model_name", names_.model_name});
    if (spec_.by_class()) labels->push_back({"class", names_.classes->name(place.class_slot)});
    if (spec_.by_tenant()) labels->push_back({"tenant", names_.tenants->name(place.tenant_slot)});
    const LabelRows& rows = store_.rows(spec_.rows);
    for (std::size_t i = 0; i < rows.names.size(); ++i) {
      labels->push_back({rows.names[i], rows.rows[static_cast<std::size_t>(place.row)][i]});
    }
  }

  const MetricStore& store_;
  const ExpositionNames& names_;
  const MetricSpec& spec_;
  MetricFamily family_;
};

}  // namespace

std::string TextPage(const MetricStore& store, const ExpositionNames& names) {
  std::vector<MetricFamily> families;
  for (const MetricSpec& spec : MetricTable()) {
    MetricFamily family = FamilyMaker(store, names, spec).Make();
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace berth
