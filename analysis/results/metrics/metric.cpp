#include "analysis/results/metrics/metric.hpp"

#include <algorithm>

#include "analysis/results/metrics/families.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

/// Metrics that are not named here follow in the order of their declaration.
constexpr std::string_view kMostTelling[] = {"evidence_loss",
                                             "peak_loss",
                                             "attention_loss",
                                             "total_variation",
                                             "output_error",
                                             "projected_output_error",
                                             "evidence_held",
                                             "evidence_nowhere",
                                             "evidence_nowhere_in_layer",
                                             "prompt_nowhere",
                                             "prompt_nowhere_in_layer",
                                             "output_cosine",
                                             "projected_output_cosine",
                                             "direction_error",
                                             "direction_cosine",
                                             "peak_loss_weighted",
                                             "peak_loss_low",
                                             "peak_loss_by_head",
                                             "peak_loss_output",
                                             "r",
                                             "isr",
                                             "oracle_cosine",
                                             "attention_loss_oracle",
                                             "r_oracle",
                                             "attention_loss_bound",
                                             "r_bound"};

auto place(const Metric& metric) {
  return std::find(std::begin(kMostTelling), std::end(kMostTelling), metric.key);
}

}  // namespace

ColumnInfo info_of(const Metric& metric) {
  std::string description = metric.meaning;
  if (metric.formula != nullptr) description += std::string(". Formula: ") + metric.formula;
  return {metric.key, metric.unit, description};
}

const std::vector<Metric>& all_metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> out;
    for (const auto family :
         {evidence_metrics, peak_metrics, attention_metrics, stored_metrics, output_metrics, read_metrics,
          importance_metrics, size_metrics, segment_metrics, bound_metrics, serving_metrics})
      for (const Metric& metric : family()) out.push_back(metric);
    return out;
  }();
  return all;
}

std::size_t metric_index(std::string_view key) {
  const std::vector<Metric>& all = all_metrics();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (key == all[i].key) return i;
  bug("no metric " + std::string(key));
}

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> out;
    for (const Metric& metric : all_metrics())
      if (metric.label != nullptr) out.push_back(metric);
    std::ranges::stable_sort(out, [](const Metric& a, const Metric& b) { return place(a) < place(b); });
    return out;
  }();
  return all;
}

const Metric& metric(std::string_view key) {
  std::vector<std::string> known;
  for (const Metric& each : metrics()) {
    if (key == each.key) return each;
    known.emplace_back(each.key);
  }
  usage_error("unknown metric '" + std::string(key) + "'", "metrics", suggestion(key, known));
}

const std::vector<const Metric*>& leading_metrics() {
  static const std::vector<const Metric*> all = {&metric("evidence_loss"), &metric("attention_loss"),
                                                 &metric("r")};
  return all;
}

}  // namespace kvsim::analysis
