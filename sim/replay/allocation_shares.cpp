#include "sim/replay/allocation_shares.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {

std::vector<AllocatedTokens> allocated_tokens(const trace::Sequence& sequence, const Request& asked,
                                              Progress& progress) {
  Request request = asked;
  request.seed = prompt_seed(sequence, asked.seed);
  Workers workers(request.threads);
  Plan plan = outline(sequence, request);
  AllocationPass allocation_pass(sequence, request, plan);
  progress.total.store(allocation_pass.work(), std::memory_order_relaxed);
  allocation_pass.run(workers, progress);
  split_budgets(sequence, request, allocation_pass, plan, sequence.length());
  const std::size_t prompt = sequence.prompt_length(), heads = sequence.model().n_kv_heads;
  std::vector<AllocatedTokens> all;
  for (const Plan::CellPlan& cell : plan.cells) {
    AllocatedTokens& out = all.emplace_back();
    out.skipped = cell.skipped;
    for (std::size_t lane = 0; lane < cell.lane_budget.size(); ++lane) {
      if (lane % heads == 0) out.tokens.emplace_back();
      out.tokens.back().push_back(std::min(cell.lane_budget[lane], prompt));
    }
  }
  return all;
}

std::vector<std::vector<double>> allocation_shares(const trace::Sequence& sequence, const Request& request,
                                                   Progress& progress) {
  if (request.cells.size() != 1) bug("shares are those of one cell");
  const AllocatedTokens given = std::move(allocated_tokens(sequence, request, progress)[0]);
  if (!given.skipped.empty()) usage_error(given.skipped, sequence.source().name());

  const std::size_t floor =
      std::min<std::size_t>(request.cells[0].composition.floor(), sequence.prompt_length());
  std::vector<std::vector<double>> shares;
  double sum = 0, lanes = 0;
  for (const std::vector<std::size_t>& layer : given.tokens) {
    std::vector<double>& above = shares.emplace_back();
    for (const std::size_t tokens : layer) {
      above.push_back(static_cast<double>(tokens - floor));
      sum += above.back();
      ++lanes;
    }
  }
  if (request.cells[0].composition.allocation.own_total()) return shares;
  for (std::vector<double>& layer : shares)
    for (double& share : layer) share = sum > 0 ? share / sum : 1 / lanes;
  return shares;
}

std::vector<std::size_t> sampled_runs(std::size_t n, double share, std::uint64_t seed) {
  std::vector<std::size_t> order = least_first(n, [&](std::size_t run) {
    return combine({seed, key_of("sampled_runs"), run});
  });
  const auto wanted = static_cast<std::size_t>(std::lround(share * static_cast<double>(n)));
  order.resize(std::clamp<std::size_t>(wanted, std::min<std::size_t>(n, 1), n));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace kvsim::sim
