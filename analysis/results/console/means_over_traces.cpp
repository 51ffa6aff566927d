#include "analysis/results/console/means_over_traces.hpp"

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {
namespace {

/// What rows of different traces have in common.
using Cell = std::tuple<std::string, std::string, std::string, std::optional<std::uint32_t>,
                        std::optional<std::uint32_t>>;
Cell cell_of(const Row& row) {
  return {row.budget, row.params, row.cut, row.layer, row.head};
}

/// Places of the rows of each cell, cells in order of appearance; of cuts that several traces have.
std::vector<std::vector<std::size_t>> cells_to_average(const std::vector<Row>& rows) {
  std::map<std::string, std::set<std::string>> traces;  // by cut
  for (const Row& row : rows) traces[row.cut].insert(row.trace);
  std::vector<std::vector<std::size_t>> out;
  std::map<Cell, std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (traces[rows[i].cut].size() < 2) continue;
    const auto [place, fresh] = places.try_emplace(cell_of(rows[i]), out.size());
    if (fresh) out.emplace_back();
    out[place->second].push_back(i);
  }
  return out;
}

/// Nothing as soon as one row has nothing.
template <class Get>
std::optional<double> mean_of(const std::vector<Row>& rows, const std::vector<std::size_t>& places, Get get) {
  double sum = 0;
  for (const std::size_t i : places) {
    const std::optional<double> value = get(rows[i]);
    if (!value) return {};
    sum += *value;
  }
  return sum / static_cast<double>(places.size());
}

Row mean_row(const std::vector<Row>& rows, const std::vector<std::size_t>& places) {
  Row out = rows[places.front()];
  out.trace = "mean of " + std::to_string(places.size());
  out.skipped.clear();  // told of the row itself
  out.budget_tokens = mean_of(rows, places, [](const Row& row) { return row.budget_tokens; });
  const std::vector<Metric>& all = all_metrics();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].derive == nullptr)
      out.set(i, mean_of(rows, places, [i](const Row& row) { return row.metric(i).real(); }));
  for (const std::size_t i : places)
    if (rows[i].holding != out.holding) out.holding.reset();
  return out;
}

std::map<std::uint64_t, double> mean_by_step(const StepLosses& losses,
                                             const std::vector<std::size_t>& places) {
  std::map<std::uint64_t, double> out;
  for (const auto& [step, first] : losses.by_step[places.front()]) {
    double sum = 0;
    bool everywhere = true;
    for (const std::size_t i : places) {
      const auto found = losses.by_step[i].find(step);
      everywhere = everywhere && found != losses.by_step[i].end();
      if (everywhere) sum += found->second;
    }
    if (everywhere) out.emplace(step, sum / static_cast<double>(places.size()));
  }
  return out;
}

}  // namespace

std::vector<Row> with_means(std::vector<Row> rows) {
  std::vector<Row> means;
  for (const std::vector<std::size_t>& places : cells_to_average(rows))
    means.push_back(mean_row(rows, places));
  rows.insert(rows.end(), means.begin(), means.end());
  return rows;
}

StepLosses with_means(StepLosses losses) {
  const std::vector<std::vector<std::size_t>> cells = cells_to_average(losses.rows);
  for (const std::vector<std::size_t>& places : cells) losses.by_step.push_back(mean_by_step(losses, places));
  losses.rows = with_means(std::move(losses.rows));
  return losses;
}

}  // namespace kvsim::analysis
