#include "analysis/figures/step_means.hpp"

#include <set>

namespace kvsim::analysis {

std::vector<Point> points_of(const StepMeans& steps) {
  std::vector<Point> out;
  for (const auto& [step, mean] : steps) out.push_back({step, *mean.value(), {}, {}});
  return out;
}

StepRows::StepRows(const ResultsView& view, const std::vector<std::size_t>& rows) {
  std::map<std::string, std::set<double>> steps;
  for (const std::size_t row : rows)
    if (const auto step = view.step.number(row)) steps[view.trace.text(row)].insert(*step);
  traces_ = steps.size();
  std::set<double> common = steps.empty() ? std::set<double>{} : steps.begin()->second;
  for (const auto& of_trace : steps)
    std::erase_if(common, [&](double step) { return !of_trace.second.contains(step); });
  for (const std::size_t row : rows) {
    const auto step = view.step.number(row);
    if (step && common.contains(*step))
      rows_.push_back(row);
    else
      left_out_ = left_out_ || step.has_value();
  }
}

}  // namespace kvsim::analysis
