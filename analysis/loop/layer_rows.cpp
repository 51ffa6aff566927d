#include "analysis/loop/layer_rows.hpp"

#include "analysis/loop/part_rows.hpp"
#include "analysis/statistics/drift_metrics.hpp"

namespace kvsim::analysis {

namespace {

std::vector<ColumnInfo> own_layer_columns() {
  std::vector<ColumnInfo> out{{"layer", "index", "layer of the model, from 0"}};
  for (const Metric& metric : drift_metrics()) out.push_back({metric.key, metric.unit, metric.meaning});
  return out;
}

}  // namespace

const std::vector<ColumnInfo>& layer_columns() {
  static const std::vector<ColumnInfo> all = columns_of_parts(own_layer_columns());
  return all;
}

std::vector<std::vector<Value>> layer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome) {
  const auto layers = [](const sim::StreamOutcome& stream) {
    std::vector<std::vector<Value>> rows;
    for (const sim::LayerDrift& drift : stream.drift)
      rows.push_back({std::uint64_t{rows.size()}, drift.residual_l2, drift.residual_cosine, drift.query_l2});
    return rows;
  };
  return rows_of_parts(item, request, outcome, own_layer_columns().size(), layers);
}

}  // namespace kvsim::analysis
