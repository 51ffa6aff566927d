#include "policies/parts/oracles/retention_plan.hpp"

#include <algorithm>
#include <numeric>

namespace kvsim::policy {
namespace {

std::vector<Position> keep_of_prompt(const MassAhead& future, std::size_t budget,
                                     const std::vector<std::uint32_t>& until) {
  std::vector<Position> order(future.prompt());
  std::iota(order.begin(), order.end(), 0);
  const auto mass = [&](Position j) { return future.n_steps() > 0 ? future.from_step(0)[j] : 0.0; };
  const auto stays_first = [&](Position a, Position b) {
    const bool a_attended = until[a] > 0, b_attended = until[b] > 0;
    if (a_attended != b_attended) return a_attended;
    if (mass(a) != mass(b)) return mass(a) > mass(b);
    return a > b;
  };
  const std::size_t n_kept = std::min(budget, order.size());
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n_kept), order.end(),
                   stays_first);
  order.resize(n_kept);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

RetentionPlan make_plan(const MassAhead& future, std::size_t budget, std::vector<std::uint32_t> until) {
  std::vector<Position> kept = keep_of_prompt(future, budget, until);
  return {std::move(kept), std::move(until)};
}

}  // namespace kvsim::policy
