#include "policies/parts/oracles/optimal_retention.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

using Departure = OptimalRetention::Departure;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Token = std::uint32_t;
using StepIndex = std::uint32_t;
constexpr Token kNobody = std::numeric_limits<Token>::max();

/// Finds, among the tokens that are kept, the one that is cheapest to evict at each step; of equals the
/// oldest.
class CheapestStaying {
 public:
  explicit CheapestStaying(const MassAhead& future)
      : cost_(future), orders_(future.n_steps()), next_(future.n_steps(), 0), stays_(future.n_tokens(), 1) {}

  void leaves(Token token) { stays_[token] = 0; }

  /// Returns kNobody if no token that exists before `step` is kept.
  Token at(std::size_t step) {
    const std::vector<Token>& order = order_at(step);
    std::size_t& next = next_[step];
    while (next < order.size() && stays_[order[next]] == 0) ++next;
    return next < order.size() ? order[next] : kNobody;
  }

 private:
  const std::vector<Token>& order_at(std::size_t step) {
    std::vector<Token>& order = orders_[step];
    if (!order.empty()) return order;
    const std::span<const double> cost = cost_.from_step(step);
    priced_.clear();
    for (Token token = 0; token < cost.size(); ++token) priced_.emplace_back(cost[token], token);
    std::sort(priced_.begin(), priced_.end());
    order.reserve(priced_.size());
    for (const auto& [price, token] : priced_) order.push_back(token);
    return order;
  }

  const MassAhead& cost_;
  std::vector<std::pair<double, Token>> priced_;  // scratch
  std::vector<std::vector<Token>> orders_;        ///< per step, by cost; made on first use
  std::vector<std::size_t> next_;                 ///< per step: all tokens before it in the order are evicted
  std::vector<char> stays_;
};

/// The cheapest assignment of tokens to the evictions that a budget forces.
///
/// Invariant (complementary slackness): with premium(j) = worth(s) - cost(s, j) for the tokens j evicted at
/// s, and 0 for those that are kept, premium(j) >= 0 and cost(s, j) + premium(j) - worth(s) >= 0 for every
/// token j that exists before step s.
class Departures {
 public:
  /// Starts with room for all tokens and no evictions.
  explicit Departures(const MassAhead& future)
      : cost_(future),
        staying_(future),
        worth_(future.n_steps(), 0.0),
        leavers_(future.n_steps()),
        prices_(future.n_steps() * future.n_steps()) {}

  /// Evicts one more token before `step`. Other tokens may have to be evicted at another step than before:
  /// the cheapest such chain of changes ends with a token that was kept until now. Appends the changed
  /// evictions. Returns the change of cost.
  double add(StepIndex step, std::vector<Departure>& changes) {
    open_.clear();
    for (StepIndex s = 1; s < leavers_.size(); ++s)
      if (leavers_[s].token != kNobody)
        open_.push_back({s, leavers_[s].column, leavers_[s].premium, kInfinity});
    reached_.clear();
    Exit exit;
    for (Reached at{step, 0}; at.distance < exit.distance; at = next(at)) {
      reached_.push_back(at);
      const Token token = staying_.at(at.step);
      if (token == kNobody) continue;
      const double distance = at.distance - worth_[at.step] + cost_.from_step(at.step)[token];
      if (distance < exit.distance) exit = {token, at.step, distance};
    }
    if (exit.token == kNobody) bug("there are more departures than tokens", "optimal_retention");
    for (const Reached& at : reached_) {
      worth_[at.step] += exit.distance - at.distance;
      leavers_[at.step].premium += exit.distance - at.distance;
    }
    return reassign(exit, step, changes);
  }

 private:
  struct Leaver {
    Token token = kNobody;
    std::uint32_t column = 0;  ///< of its prices
    StepIndex taker = 0;       ///< the step that takes it in the current search
    double premium = 0;        ///< dual price of evicting it
  };
  /// A step that the current search has not reached yet, with what it knows of the step's leaver.
  struct Open {
    StepIndex step;
    std::uint32_t column;
    double premium, distance;
  };
  struct Reached {
    StepIndex step;
    double distance;  ///< in reduced costs from the eviction being added
  };
  struct Exit {
    Token token = kNobody;
    StepIndex step = 0;
    double distance = kInfinity;
  };

  /// Step `at` may take the token of another step, which then lacks one. Returns the nearest step that is not
  /// reached yet, at an infinite distance if there is none. Tokens evicted at step 0 are never taken: that
  /// step gets evictions only when all other steps have theirs, and the search then begins there.
  Reached next(const Reached& at) {
    const double* const prices = prices_.data() + at.step * leavers_.size();
    const double base = at.distance - worth_[at.step];
    std::size_t nearest = open_.size();
    double least = kInfinity;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      Open& other = open_[i];
      const double distance = base + prices[other.column] + other.premium;
      if (distance < other.distance) {
        other.distance = distance;
        leavers_[other.step].taker = at.step;
      }
      if (other.distance < least) {
        least = other.distance;
        nearest = i;
      }
    }
    if (nearest == open_.size()) return {at.step, kInfinity};
    const Reached found{open_[nearest].step, least};
    open_[nearest] = open_.back();
    open_.pop_back();
    return found;
  }

  /// Walks the path back from the token that was kept to the new eviction.
  double reassign(const Exit& exit, StepIndex added, std::vector<Departure>& changes) {
    double change = 0;
    staying_.leaves(exit.token);
    Token token = exit.token;
    std::uint32_t column = free_column_;
    if (exit.step > 0) fill(column, token);
    for (StepIndex step = exit.step;;) {
      const double price = cost_.from_step(step)[token];
      changes.push_back({token, step});
      change += price;
      Leaver& leaver = leavers_[step];
      const Leaver robbed = leaver;
      if (step > 0) {
        leaver.token = token;
        leaver.column = column;
        leaver.premium = worth_[step] - price;
      }
      if (step == added) {
        free_column_ = step > 0 ? free_column_ + 1 : column;
        return change;
      }
      change -= cost_.from_step(step)[robbed.token];
      token = robbed.token;
      column = robbed.column;
      step = robbed.taker;
    }
  }

  void fill(std::uint32_t column, Token token) {
    for (std::size_t s = 0; s < leavers_.size(); ++s) {
      const std::span<const double> cost = cost_.from_step(s);
      prices_[s * leavers_.size() + column] = token < cost.size() ? cost[token] : kInfinity;
    }
  }

  const MassAhead& cost_;
  CheapestStaying staying_;
  std::vector<double> worth_;    ///< per step: dual price of its eviction
  std::vector<Leaver> leavers_;  ///< per step but the first, which has many evictions
  /// [S, S]: the cost of evicting the leavers, a column each, at every step; infinite before they exist. A
  /// search reads these side by side rather than all over the costs of all tokens.
  std::vector<double> prices_;
  std::uint32_t free_column_ = 0;  ///< columns behind it are free until every step has its leaver
  std::vector<Open> open_;
  std::vector<Reached> reached_;
};

}  // namespace

OptimalRetention::OptimalRetention(const MassAhead& future)
    : losses_(future.n_tokens(), 0.0), n_changes_(future.n_tokens(), 0) {
  if (future.n_steps() == 0) return;
  Departures departures(future);
  for (std::size_t budget = future.n_tokens(); --budget > 0;) {
    // Each step whose token finds the unit full has one eviction; the first may have more.
    const std::size_t step = budget > future.first() ? budget - future.first() : 0;
    losses_[budget - 1] = losses_[budget] + departures.add(static_cast<StepIndex>(step), changes_);
    n_changes_[budget - 1] = changes_.size();
  }
}

RetentionPlan OptimalRetention::plan(const MassAhead& future, std::size_t budget) const {
  if (budget == 0) bug("a unit holds at least the token it attends from", "optimal_retention");
  std::vector<std::uint32_t> until(future.n_tokens(), static_cast<std::uint32_t>(future.n_steps()));
  const std::size_t n_changes = budget <= n_changes_.size() ? n_changes_[budget - 1] : 0;
  for (const Departure& change : std::span(changes_).first(n_changes)) until[change.token] = change.step;
  return make_plan(future, budget, std::move(until));
}

namespace {

constexpr double kRounding = 1e-10;

}  // namespace

std::vector<double> append_losses(const MassAhead& future) {
  std::vector<double> out(future.prompt(), 0.0);
  if (future.n_steps() == 0 || out.empty()) return out;
  std::vector<double> mass(future.from_step(0).begin(),
                           future.from_step(0).begin() + static_cast<std::ptrdiff_t>(future.prompt()));
  std::sort(mass.begin(), mass.end(), std::greater<>());
  for (std::size_t b = out.size(); --b > 0;) out[b - 1] = out[b] + mass[b];
  return out;
}

std::vector<double> gains_of(std::span<const double> losses) {
  std::vector<double> out;
  for (std::size_t b = 1; b < losses.size(); ++b) {
    out.push_back(losses[b - 1] - losses[b]);
    if (out.back() < -kRounding || (b > 1 && out[b - 1] > out[b - 2] + kRounding))
      bug("a loss curve is not convex at a budget of " + std::to_string(b + 1), "gains_of");
  }
  return out;
}

double least_loss(std::span<const std::vector<double>> curves, std::size_t total, std::size_t most) {
  if (total < curves.size() || most == 0) bug("every unit holds at least a token", "least_loss");
  std::vector<std::vector<double>> gains;
  for (const std::vector<double>& curve : curves) gains.push_back(gains_of(curve));
  const std::vector<std::size_t> more = counts_of_largest(gains, total - curves.size(), most - 1);
  double sum = 0;
  for (std::size_t unit = 0; unit < curves.size(); ++unit) sum += curves[unit][more[unit]];
  return sum;
}

}  // namespace kvsim::policy
