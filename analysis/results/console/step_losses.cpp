#include "analysis/results/console/step_losses.hpp"

#include <set>

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

}  // namespace kvsim::analysis
