#include "analysis/statistics/drift_metrics.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

const std::vector<Metric>& drift_metrics() {
  static const std::vector<Metric> all = {
      {.key = "residual_l2",
       .unit = "share",
       .meaning = "|h' - h| / |h| of the residual stream after the layer, mean over tokens",
       .label = "drift of the residual stream",
       .better = Better::lower,
       .percent = true},
      {.key = "residual_cosine",
       .unit = "",
       .meaning = "cosine of h' and h, mean over tokens",
       .label = "cosine of the two residual streams",
       .better = Better::higher},
      {.key = "query_l2",
       .unit = "share",
       .meaning = "|q' - q| / |q| of the layer's queries, mean over tokens",
       .label = "drift of the queries",
       .better = Better::lower,
       .percent = true},
  };
  return all;
}

const Metric& drift_metric(std::string_view key) {
  std::vector<std::string> known;
  for (const Metric& metric : drift_metrics()) {
    if (key == metric.key) return metric;
    known.emplace_back(metric.key);
  }
  usage_error("unknown measure of drift '" + std::string(key) + "'", "--metric", suggestion(key, known));
}

std::vector<ColumnInfo> drift_columns() {
  std::vector<ColumnInfo> out;
  for (const char* key : {"item", "workload", "policy", "params", "budget", "budget_tokens", "cut"})
    out.push_back({key, "", ""});
  out.push_back({"layer", "index", "layer of the model, from 0"});
  for (const Metric& metric : drift_metrics()) out.push_back({metric.key, metric.unit, metric.meaning});
  return out;
}

bool holds_drift_rows(const Records& table) {
  const auto has = [&](std::string_view key) {
    return std::any_of(table.columns.begin(), table.columns.end(),
                       [&](const ColumnInfo& column) { return column.key == key; });
  };
  return has("item") && has("layer") && has(drift_metrics().front().key);
}

}  // namespace kvsim::analysis
