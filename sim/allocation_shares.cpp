#include "sim/allocation_shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/workers.hpp"
#include "sim/plan.hpp"
#include "sim/survey.hpp"

namespace kvsim::sim {

std::vector<std::vector<double>> allocation_shares(const trace::Sequence& sequence, const Request& request,
                                                   Progress& progress) {
  if (request.cells.size() != 1) bug("shares are those of one cell");
  Workers workers(request.threads);
  Plan plan = outline(sequence, request);
  Survey survey(sequence, request, plan);
  progress.total.store(survey.work(), std::memory_order_relaxed);
  survey.run(workers, progress);
  split_budgets(sequence, request, survey, plan);
  const Plan::CellPlan& cell = plan.cells[0];
  if (!cell.skipped.empty()) usage_error(cell.skipped, sequence.source().name());

  const std::size_t prompt = sequence.prompt_length(), heads = sequence.model().n_kv_heads;
  const std::size_t floor = std::min(request.cells[0].composition.floor(), prompt);
  std::vector<std::vector<double>> shares(sequence.model().n_layers, std::vector<double>(heads));
  double sum = 0;
  for (std::size_t lane = 0; lane < cell.lane_budget.size(); ++lane) {
    const auto above = static_cast<double>(std::min(cell.lane_budget[lane], prompt) - floor);
    shares[lane / heads][lane % heads] = above;
    sum += above;
  }
  const auto lanes = static_cast<double>(cell.lane_budget.size());
  for (std::vector<double>& layer : shares)
    for (double& share : layer) share = sum > 0 ? share / sum : 1 / lanes;
  return shares;
}

std::vector<std::size_t> sampled_runs(std::size_t n, double share, std::uint64_t seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return combine({seed, key_of("sampled_runs"), a}) < combine({seed, key_of("sampled_runs"), b});
  });
  const auto wanted = static_cast<std::size_t>(std::lround(share * static_cast<double>(n)));
  order.resize(std::clamp<std::size_t>(wanted, std::min<std::size_t>(n, 1), n));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace kvsim::sim
