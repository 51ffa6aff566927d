#include "policies/parts/oracles/future_greedy.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::policy {

RetentionPlan future_greedy(const MassAhead& future, std::size_t budget) {
  if (budget == 0) bug("a unit holds at least the token it attends from", "future_greedy");
  const auto n_steps = static_cast<std::uint32_t>(future.n_steps());
  std::vector<std::uint32_t> until(future.n_tokens(), n_steps);
  std::vector<Position> held(future.prompt());
  std::iota(held.begin(), held.end(), 0);
  for (std::uint32_t s = 0; s < n_steps; ++s) {
    const std::size_t query = future.first() + s;
    const bool joins = query >= future.prompt();
    const std::size_t room = joins ? budget - 1 : budget;  // beside the token that joins
    if (held.size() > room) {
      const std::span<const double> mass = future.from_step(s);
      const auto n_leaving = static_cast<std::ptrdiff_t>(held.size() - room);
      std::nth_element(held.begin(), held.begin() + n_leaving - 1, held.end(), [&](Position a, Position b) {
        return mass[a] != mass[b] ? mass[a] < mass[b] : a < b;
      });
      for (auto left = held.begin(); left != held.begin() + n_leaving; ++left) until[*left] = s;
      held.erase(held.begin(), held.begin() + n_leaving);
    }
    if (joins) held.push_back(static_cast<Position>(query));
  }
  return make_plan(future, budget, std::move(until));
}

}  // namespace kvsim::policy
