#include "policies/parts/oracles/planned_oracle.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

class PlannedDecoder final : public Decoder {
 public:
  PlannedDecoder(std::vector<std::uint32_t> until, std::size_t origin, std::size_t first)
      : until_(std::move(until)), origin_(origin), first_(first) {}

  /// The plan evicts tokens that the layer's window has left behind, too: then the unit has room, and what
  /// the plan would have evicted instead of them leaves later.
  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    const std::size_t step = static_cast<std::size_t>(arrival.position) - origin_ - first_;
    const auto until = [&](Position held) { return until_[static_cast<std::size_t>(held) - origin_]; };
    const auto victim = std::ranges::min_element(arrival.slots, {}, until);
    if (until(*victim) > step)
      bug("the plan evicts no token before position " + std::to_string(arrival.position), "PlannedOracle");
    victims.push_back(static_cast<std::size_t>(victim - arrival.slots.begin()));
  }

 private:
  std::vector<std::uint32_t> until_;
  std::size_t origin_, first_;  ///< position of column 0; column of step 0
};

}  // namespace

void PlannedOracle::set_future(const Future& future) {
  future_.emplace(future.attention(), future.prompt(), horizon_);
  origin_ = future.first();
  prepare(*future_);
}

Start PlannedOracle::start(std::size_t budget) const {
  RetentionPlan made = plan(future_.value(), budget);
  return {std::move(made.kept),
          std::make_unique<PlannedDecoder>(std::move(made.until), origin_, future_->first())};
}

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
