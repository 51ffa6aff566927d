#include "policies/parts/optimal_retention.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using StepIndex = std::uint32_t;

double least(std::span<const double> values) {
  // Independent minima, so that the compiler may use wide instructions.
  std::array<double, 16> lane;
  lane.fill(kInfinity);
  std::size_t i = 0;
  for (; i + lane.size() <= values.size(); i += lane.size())
    for (std::size_t k = 0; k < lane.size(); ++k) lane[k] = values[i + k] < lane[k] ? values[i + k] : lane[k];
  for (; i < values.size(); ++i) lane[0] = std::min(lane[0], values[i]);
  return *std::min_element(lane.begin(), lane.end());
}

/// The cheapest assignment of tokens to the departures forced so far.
///
/// Invariant (complementary slackness): cost(s, j) + premium_[j] - worth_[s] >= 0 for every token j that
/// exists before step s, = 0 for the tokens leaving at s; premium_[j] >= 0, = 0 for tokens that stay.
class Departures {
 public:
  explicit Departures(const MassAhead& future)
      : cost_(future),
        leaves_at_(future.n_tokens(), static_cast<StepIndex>(future.n_steps())),
        premium_(future.n_tokens(), 0.0),
        worth_(future.n_steps(), 0.0),
        distance_(future.n_tokens()),
        from_(future.n_tokens()),
        entry_(future.n_steps()) {}

  /// `count` prompt tokens leave before the first step: the cheapest. Comes before any other departure.
  void begin(std::size_t count) {
    if (count == 0) return;
    const std::span<const double> cost = cost_.from_step(0);
    std::vector<std::size_t> order(cost.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(order.begin(), last, order.end(), [&](std::size_t a, std::size_t b) {
      return cost[a] != cost[b] ? cost[a] < cost[b] : a < b;
    });
    worth_[0] = cost[*last];
    for (auto token = order.begin(); token <= last; ++token) {
      leaves_at_[*token] = 0;
      premium_[*token] = worth_[0] - cost[*token];
    }
  }

  /// One more token leaves before `step` > 0, which had no departure yet. Others may have to leave at another
  /// step than so far: the cheapest such chain of changes ends with a token that stayed.
  void add(StepIndex step) {
    std::fill(distance_.begin(), distance_.end(), kInfinity);
    reached_steps_.clear();
    reached_tokens_.clear();
    search_from(step, 0);
    double nearest = 0;
    std::size_t token = 0;
    for (;;) {
      nearest = least(distance_);
      token = static_cast<std::size_t>(std::find(distance_.begin(), distance_.end(), nearest) -
                                       distance_.begin());
      if (stays(token)) break;
      const StepIndex robbed = leaves_at_[token];
      entry_[robbed] = token;
      close(token, nearest);
      search_from(robbed, nearest);
    }
    reprice(nearest);
    reassign(token, step);
  }

  std::vector<StepIndex> take() && { return std::move(leaves_at_); }

 private:
  struct ReachedStep {
    StepIndex step;
    double distance;
  };
  struct ReachedToken {
    std::size_t token;
    double distance, premium;
  };

  bool stays(std::size_t token) const { return leaves_at_[token] == cost_.n_steps(); }

  /// `step`, at `distance`, lacks a token: every open one may be the one.
  void search_from(StepIndex step, double distance) {
    reached_steps_.push_back({step, distance});
    // Tokens that leave before step 0 are many: they all lie at its distance, and none of them need be asked
    // to take the place of another.
    if (step == 0)
      for (std::size_t j = 0; j < cost_.prompt(); ++j)
        if (leaves_at_[j] == 0 && premium_[j] < kInfinity) close(j, distance);
    const std::span<const double> cost = cost_.from_step(step);
    const double base = distance - worth_[step];
    for (std::size_t j = 0; j < cost.size(); ++j) {
      const double candidate = base + cost[j] + premium_[j];
      const bool nearer = candidate < distance_[j];
      distance_[j] = nearer ? candidate : distance_[j];
      from_[j] = nearer ? step : from_[j];
    }
  }

  /// The token's distance is final: no search may find it again.
  void close(std::size_t token, double distance) {
    reached_tokens_.push_back({token, distance, premium_[token]});
    premium_[token] = kInfinity;
    distance_[token] = kInfinity;
  }

  void reprice(double length) {
    for (const ReachedStep& reached : reached_steps_) worth_[reached.step] += length - reached.distance;
    for (const ReachedToken& reached : reached_tokens_)
      premium_[reached.token] = reached.premium + (length - reached.distance);
  }

  /// Walks the path back from the token that stayed to the new departure.
  void reassign(std::size_t token, StepIndex added) {
    for (;;) {
      const StepIndex step = from_[token];
      leaves_at_[token] = step;
      if (step == added) return;
      token = entry_[step];
    }
  }

  const MassAhead& cost_;
  std::vector<StepIndex> leaves_at_;  ///< per token; n_steps: stays
  std::vector<double> premium_;       ///< per token: dual price of having it leave
  std::vector<double> worth_;         ///< per step: dual price of its departure
  // One search: shortest distances in reduced costs from the departure being added.
  std::vector<double> distance_;    ///< per open token; infinite once closed
  std::vector<StepIndex> from_;     ///< per token: step from which its distance was found
  std::vector<std::size_t> entry_;  ///< per step: token whose loss makes it search
  std::vector<ReachedStep> reached_steps_;
  std::vector<ReachedToken> reached_tokens_;
};

}  // namespace

RetentionPlan optimal_retention(const MassAhead& future, std::size_t budget) {
  if (budget == 0) bug("a unit holds at least the token it attends from", "optimal_retention");
  // Besides a step's own token. A last prompt row that is measured again has room for one prompt token more,
  // and one more to choose from: its own.
  const std::size_t room = budget - 1;
  Departures departures(future);
  if (future.n_steps() > 0 && future.first() > room) departures.begin(future.first() - room);
  for (std::size_t s = 1; s < future.n_steps(); ++s)
    if (future.first() + s > room) departures.add(static_cast<StepIndex>(s));
  return make_plan(future, budget, std::move(departures).take());
}

}  // namespace kvsim::policy
