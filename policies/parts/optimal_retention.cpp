#include "policies/parts/optimal_retention.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Token = std::uint32_t;
constexpr Token kNobody = std::numeric_limits<Token>::max();

/// Of the tokens that stay, the one that is cheapest to lose at each step; of equals the oldest.
class CheapestStaying {
 public:
  explicit CheapestStaying(const MassAhead& future)
      : cost_(future), heaps_(future.n_steps()), stays_(future.n_tokens(), 1) {}

  bool stays(Token token) const { return stays_[token] != 0; }
  void leaves(Token token) { stays_[token] = 0; }

  /// kNobody if none that exists before `step` stays.
  Token at(std::size_t step) {
    const std::span<const double> cost = cost_.from_step(step);
    const auto dearer = [&](Token a, Token b) { return cost[a] != cost[b] ? cost[a] > cost[b] : a > b; };
    std::vector<Token>& heap = heaps_[step];
    if (heap.empty()) {
      heap.resize(cost.size());
      std::iota(heap.begin(), heap.end(), Token{0});
      std::make_heap(heap.begin(), heap.end(), dearer);
    }
    while (heap.size() > 1 && !stays(heap.front())) {
      std::pop_heap(heap.begin(), heap.end(), dearer);
      heap.pop_back();
    }
    return !heap.empty() && stays(heap.front()) ? heap.front() : kNobody;
  }

 private:
  const MassAhead& cost_;
  std::vector<std::vector<Token>> heaps_;  ///< per step, made when it is first asked for
  std::vector<char> stays_;
};

/// The cheapest assignment of tokens to the departures that a budget forces.
///
/// Invariant (complementary slackness): with premium(j) = worth(s) - cost(s, j) for the tokens j that leave
/// at s, and 0 for those that stay, premium(j) >= 0 and cost(s, j) + premium(j) - worth(s) >= 0 for every
/// token j that exists before step s.
class Departures {
 public:
  /// Room for everything: nobody leaves.
  explicit Departures(const MassAhead& future)
      : cost_(future),
        budget_(future.n_tokens()),
        staying_(future),
        leaves_at_(future.n_tokens(), static_cast<std::uint32_t>(future.n_steps())),
        leaver_(future.n_steps(), kNobody),
        worth_(future.n_steps(), 0.0),
        distance_(future.n_steps()),
        is_reached_(future.n_steps()),
        from_(future.n_steps()) {}

  std::size_t budget() const { return budget_; }

  /// One slot less. Returns the attention that this loses.
  double shrink() {
    --budget_;
    // Steps whose token finds the unit full have one departure each, but for the first.
    return add(budget_ > cost_.first() ? budget_ - cost_.first() : 0);
  }

  std::vector<std::uint32_t> take() && { return std::move(leaves_at_); }

 private:
  /// One more token leaves before `step`. Others may have to leave at another step than so far: the cheapest
  /// such chain of changes ends with a token that stayed.
  double add(std::size_t step) {
    std::fill(distance_.begin(), distance_.end(), kInfinity);
    std::fill(is_reached_.begin(), is_reached_.end(), 0);
    reached_.clear();
    double length = kInfinity;
    std::size_t last = step;
    Token token = kNobody;
    distance_[step] = 0;
    for (std::size_t at = step; at < cost_.n_steps() && distance_[at] < length; at = nearest()) {
      reached_.push_back({at, distance_[at]});
      is_reached_[at] = 1;
      const double base = distance_[at] - worth_[at];
      const std::span<const double> cost = cost_.from_step(at);
      if (const Token free = staying_.at(at); free != kNobody && base + cost[free] < length) {
        length = base + cost[free];
        last = at;
        token = free;
      }
      distance_[at] = kInfinity;  // final: no search may find it again
      reach_from(at, base, cost);
    }
    if (token == kNobody) bug("there are more departures than tokens", "optimal_retention");
    for (const Reached& reached : reached_) worth_[reached.step] += length - reached.distance;
    return reassign(token, last, step);
  }

  /// Step `at` takes the token of another step, which then lacks one. Those of step 0 are never asked: it
  /// gets departures only when all other steps have theirs, and is then where the search begins.
  void reach_from(std::size_t at, double base, std::span<const double> cost) {
    for (std::size_t s = 1; s < leaver_.size(); ++s) {
      const Token token = leaver_[s];
      if (is_reached_[s] != 0 || token >= cost.size()) continue;  // nobody leaves, or is not there yet
      const double distance = base + cost[token] + worth_[s] - cost_.from_step(s)[token];
      if (distance < distance_[s]) {
        distance_[s] = distance;
        from_[s] = at;
      }
    }
  }

  std::size_t nearest() const {
    const auto found = std::min_element(distance_.begin(), distance_.end());
    return *found < kInfinity ? static_cast<std::size_t>(found - distance_.begin()) : cost_.n_steps();
  }

  /// Walks the path back from the token that stayed to the new departure. Returns the change of cost.
  double reassign(Token token, std::size_t step, std::size_t added) {
    double change = 0;
    staying_.leaves(token);
    for (;;) {
      const Token robbed = step == added ? kNobody : leaver_[step];
      change += cost_.from_step(step)[token];
      if (robbed != kNobody) change -= cost_.from_step(step)[robbed];
      leaves_at_[token] = static_cast<std::uint32_t>(step);
      if (step > 0) leaver_[step] = token;
      if (step == added) return change;
      token = robbed;
      step = from_[step];
    }
  }

  struct Reached {
    std::size_t step;
    double distance;
  };

  const MassAhead& cost_;
  std::size_t budget_;
  CheapestStaying staying_;
  std::vector<std::uint32_t> leaves_at_;  ///< per token: the step; n_steps: stays
  std::vector<Token> leaver_;             ///< per step but the first, which has many
  std::vector<double> worth_;             ///< per step: dual price of its departure
  // One search: shortest distances in reduced costs from the departure being added.
  std::vector<double> distance_;  ///< per step; infinite once reached
  std::vector<char> is_reached_;
  std::vector<std::size_t> from_;  ///< per step: the step that takes its token
  std::vector<Reached> reached_;
};

}  // namespace

RetentionPlan optimal_retention(const MassAhead& future, std::size_t budget) {
  if (budget == 0) bug("a unit holds at least the token it attends from", "optimal_retention");
  Departures departures(future);
  while (future.n_steps() > 0 && departures.budget() > budget) departures.shrink();
  return make_plan(future, budget, std::move(departures).take());
}

std::vector<double> optimal_losses(const MassAhead& future) {
  std::vector<double> out(future.n_tokens(), 0.0);
  Departures departures(future);
  for (std::size_t budget = out.size(); future.n_steps() > 0 && budget-- > 1;)
    out[budget - 1] = out[budget] + departures.shrink();
  return out;
}

}  // namespace kvsim::policy
