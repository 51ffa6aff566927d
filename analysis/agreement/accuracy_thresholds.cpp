#include "analysis/agreement/accuracy_thresholds.hpp"

#include <algorithm>
#include <string_view>

#include "analysis/statistics/trace_groups.hpp"

namespace kvsim::analysis {
namespace {

/// A policy at a budget on a half of the items.
struct Cell {
  double judged = 0;  ///< by the open measure; larger is better
  bool kept = false;  ///< whether it has the full cache's accuracy, or nearly
};

std::size_t place_of(const LoopsAtCut& loops, std::string_view closed) {
  const auto found = std::find_if(loops.closed.begin(), loops.closed.end(),
                                  [&](const ClosedMeasure* each) { return each->key == closed; });
  return static_cast<std::size_t>(found - loops.closed.begin());
}

std::vector<Cell> cells_of(const RankedWorkload& of, std::size_t open, std::size_t budget, std::size_t half) {
  const std::size_t right = place_of(of.loops, "right");
  const Shared shared = of.judged.shared(open, right, budget, of.judged.ran_on_all(of.workload, budget),
                                         of.judged.items_of(of.workload, half));
  std::vector<Cell> out;
  if (members(shared.items) == 0) return out;
  std::vector<double> full;
  for (const LoopsAtCut::Item& item : of.loops.items) full.push_back(item.right_full);
  const double enough = of.options.kept * mean_over(shared.items, full);
  const Judged &by_open = of.judged.by_open(open, budget, shared),
               &by_right = of.judged.by_closed(right, budget, shared);
  for (std::size_t p = 0; p < shared.policies.size(); ++p)
    out.push_back({by_open.means[p], by_right.means[p] >= enough});
  return out;
}

struct Threshold {
  std::optional<double> value{};
  std::uint64_t cells = 0;  ///< within it
};

/// The worst value such that of the cells that are as good or better nearly all keep their accuracy.
Threshold threshold_of(std::vector<Cell> cells, double trusted) {
  std::sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) { return a.judged > b.judged; });
  Threshold out;
  double kept = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    kept += cells[i].kept ? 1 : 0;
    const bool last_of_equals = i + 1 == cells.size() || cells[i + 1].judged < cells[i].judged;
    if (last_of_equals && kept >= trusted * static_cast<double>(i + 1)) out = {cells[i].judged, i + 1};
  }
  return out;
}

}  // namespace

std::vector<ColumnInfo> threshold_columns() {
  return {{"open", "", "measure of the replay"},
          {"threshold", "of the measure", "value up to which one half of the items trusts it; null: nowhere"},
          {"chosen_within", "cells", "policies at budgets that are as good or better on that half"},
          {"within", "policies", "on the other half at this budget, as good as the threshold or better"},
          {"within_kept", "policies", "of those, with the full cache's accuracy or nearly"},
          {"beyond", "policies", "worse than the threshold"},
          {"beyond_kept", "policies", "of those, with that accuracy all the same"}};
}

void add_thresholds(const RankedWorkload& of, std::vector<std::vector<Value>>& rows) {
  for (std::size_t open = 0; open < of.loops.open.size(); ++open) {
    std::vector<Cell> choosing;
    for (std::size_t budget = 0; budget < of.loops.budgets.size(); ++budget)
      for (const Cell& cell : cells_of(of, open, budget, kChooses)) choosing.push_back(cell);
    const Threshold threshold = threshold_of(choosing, of.options.trusted);
    const double sign = of.loops.open[open]->better == Better::lower ? -1 : 1;
    for (std::size_t budget = 0; budget < of.loops.budgets.size(); ++budget) {
      const std::vector<Cell> cells = cells_of(of, open, budget, kReports);
      if (cells.empty()) continue;
      std::uint64_t within = 0, within_kept = 0, kept = 0;
      for (const Cell& cell : cells) {
        kept += cell.kept ? 1 : 0;
        if (!threshold.value || cell.judged < *threshold.value) continue;
        within += 1;
        within_kept += cell.kept ? 1 : 0;
      }
      std::vector<Value> row = row_head(of, budget);
      // Adding 0 turns -0 into 0.
      row.insert(row.end(),
                 {std::string(of.loops.open[open]->key),
                  threshold.value ? Value(sign * *threshold.value + 0.0) : Value(), threshold.cells, within,
                  within_kept, cells.size() - within, kept - within_kept});
      rows.push_back(std::move(row));
    }
  }
}

}  // namespace kvsim::analysis
