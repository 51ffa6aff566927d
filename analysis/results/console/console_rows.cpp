#include "analysis/results/console/console_rows.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

StepLosses step_losses(const std::vector<Row>& rows) {
  StepLosses out;
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (before == nullptr || *row.step <= *before->step) {
      out.rows.push_back(row);
      out.by_step.emplace_back();
    }
    before = &row;
    if (const std::optional<double> loss = row["attention_loss"])
      out.by_step.back().emplace(*row.step, *loss);
  }
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    if (out.by_step[i].empty()) continue;
    double sum = 0;
    for (const auto& [step, loss] : out.by_step[i]) sum += loss;
    out.rows[i].set("attention_loss", sum / static_cast<double>(out.by_step[i].size()));
  }
  return out;
}

std::vector<std::uint64_t> shown_steps(const StepLosses& losses) {
  constexpr std::size_t kMostSteps = 8;  ///< measured steps that all have their column
  std::set<std::uint64_t> steps;
  for (const auto& by_step : losses.by_step)
    for (const auto& [step, loss] : by_step) steps.insert(step);
  if (steps.size() > kMostSteps) {
    const std::uint64_t last = *steps.rbegin();
    std::erase_if(steps, [&](std::uint64_t step) { return step != last && (step & (step - 1)) != 0; });
  }
  return {steps.begin(), steps.end()};
}

namespace {

/// What is compared with what.
using Contest = std::tuple<std::string, std::string, std::string, std::optional<std::uint32_t>,
                           std::optional<std::uint32_t>>;
Contest contest_of(const Row& row) {
  return {row.trace, row.cut, row.budget, row.layer, row.head};
}

/// Lower is better; undefined for rows out of competition.
std::optional<double> badness(const Row& row, const Metric& metric) {
  if (row.own_budget || row.oracle) return {};
  return row[metric.key]
             ? std::optional(metric.better == Better::higher ? -*row[metric.key] : *row[metric.key])
             : std::nullopt;
}

/// What they compete by: the first metric that one of them has. Cells without it, such as those that store
/// other numbers, are out of competition.
const Metric& metric_of(const std::vector<Row>& rows) {
  for (const Metric* metric : leading_metrics())
    if (std::ranges::any_of(rows, [&](const Row& row) { return row[metric->key].has_value(); }))
      return *metric;
  return *leading_metrics().back();
}

}  // namespace

std::vector<bool> winners(const std::vector<Row>& rows) {
  struct Range {
    double least, most;
  };
  std::map<Contest, Range> ranges;
  const Metric& metric = metric_of(rows);
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row, metric);
    if (!bad) continue;
    const auto [entry, fresh] = ranges.try_emplace(contest_of(row), Range{*bad, *bad});
    entry->second.least = std::min(entry->second.least, *bad);
    entry->second.most = std::max(entry->second.most, *bad);
  }
  std::vector<bool> won;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row, metric);
    const auto range = ranges.find(contest_of(row));
    won.push_back(bad && *bad == range->second.least && range->second.least < range->second.most);
  }
  return won;
}

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
      out.set(i, value_of(mean_of(rows, places, [i](const Row& row) { return number(row.metric(i)); })));
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
