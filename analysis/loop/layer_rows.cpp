#include "analysis/loop/layer_rows.hpp"

#include "analysis/loop/answer_keys.hpp"
#include "analysis/statistics/drift_metrics.hpp"

namespace kvsim::analysis {

const std::vector<ColumnInfo>& layer_columns() {
  static const std::vector<ColumnInfo> all = [] {
    std::vector<ColumnInfo> out;
    for (const std::string_view key : answer_keys()) out.push_back(answer_columns()[answer_column(key)]);
    out.push_back({"layer", "index", "layer of the model, from 0"});
    for (const Metric& metric : drift_metrics()) out.push_back({metric.key, metric.unit, metric.meaning});
    out.push_back(answer_columns()[answer_column("skipped")]);
    return out;
  }();
  return all;
}

std::vector<std::vector<Value>> layer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome) {
  const std::vector<std::vector<Value>> answers = answer_rows(item, request, outcome);
  const std::size_t skipped = answer_column("skipped");
  std::vector<std::vector<Value>> rows;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::vector<Value> keys;
    for (const std::string_view key : answer_keys()) keys.push_back(answers[i][answer_column(key)]);
    const sim::LoopCell& cell = outcome.cells[i / request.modes.size()];
    if (!cell.skipped.empty()) {
      keys.resize(layer_columns().size() - 1);
      keys.push_back(answers[i][skipped]);
      rows.push_back(std::move(keys));
      continue;
    }
    const std::vector<sim::LayerDrift>& drift = cell.modes[i % request.modes.size()].drift;
    for (std::size_t layer = 0; layer < drift.size(); ++layer) {
      std::vector<Value>& row = rows.emplace_back(keys);
      row.insert(row.end(), {std::uint64_t{layer}, drift[layer].residual_l2, drift[layer].residual_cosine,
                             drift[layer].query_l2, answers[i][skipped]});
    }
  }
  return rows;
}

}  // namespace kvsim::analysis
