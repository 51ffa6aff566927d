#pragma once
/// The best permanent eviction: the schedule that retains the most attention among all that keep at most
/// `budget` positions, admit every token at its own step and never readmit a token. No online policy that
/// holds no more in the unit can beat it.
///
/// Choosing how long each token is resident, with at most `budget` resident at any step, is a minimum-cost
/// flow along time with an arc for every (token, step). The same optimum is found here from the other side,
/// by choosing which token is evicted when, which needs no such network:
/// - Every step whose token finds the unit full forces one eviction (the first step as many as the prompt is
///   too long), so the number of evictions before each step is known in advance.
/// - A token evicted before step s loses the attention it would receive from s on, which only shrinks as s
///   grows, so evicting it before the step that forces the eviction never pays.
///
/// What remains is an assignment: each forced eviction gets a distinct token that exists by then, at the
/// price of its mass ahead, and the sum of prices is to be least. A unit with one slot less has exactly one
/// eviction more. So the optima of all budgets are found one after the other, from room for all tokens down
/// to a single slot, each by one shortest augmenting path with dual prices (Kuhn 1955; Jonker and Volgenant
/// 1987). A token evicted under one budget is evicted under all smaller ones, if not always at the same step:
/// a path runs over the steps, of which each but the first has one eviction, and ends with the cheapest token
/// that was kept so far.
///
/// Time O((P + S) S (S + log(P + S))) at worst, in practice tens to hundreds of scans of S numbers per
/// budget; memory S (P + S) indices and S^2 prices.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/parts/oracles/mass_ahead.hpp"
#include "policies/parts/oracles/planned_oracle.hpp"

namespace kvsim::policy {

/// The best schedules of all budgets.
class OptimalRetention {
 public:
  /// `future` must reach to the end (horizon kWholeFuture).
  explicit OptimalRetention(const MassAhead& future);

  /// Returns the best schedule of one budget, for the same future. budget >= 1, else Error (bug). Exact up to
  /// the rounding of double sums: no schedule retains more by over about 1e-12 of the total attention. Among
  /// equally good schedules the choice is fixed by the input.
  RetentionPlan plan(const MassAhead& future, std::size_t budget) const;
  /// [b - 1]: attention on tokens that are not resident, summed over the steps, with a budget of b = 1 .. P +
  /// S. It falls with b and is convex, because slots are units of a flow through time.
  const std::vector<double>& losses() const { return losses_; }

  /// The eviction of a token before a step.
  struct Departure {
    std::uint32_t token, step;
  };

 private:
  std::vector<double> losses_;
  std::vector<Departure> changes_;      ///< from room for all tokens down to one slot; later ones count
  std::vector<std::size_t> n_changes_;  ///< [b - 1]: number of changes that lead to a budget of b
};

// How much a unit loses as a function of its budget, and how a total is best split over several such curves.
//
// A curve has at [b - 1] the attention on tokens that are not resident, summed over the measured steps, with
// a budget of b = 1, 2, ... tokens. The curves here are convex: each further token gains no more than the
// one before. So taking the largest gain of all units again and again ends with the best split.

/// Returns the losses of units that hold b tokens of the prompt, chosen once, and every generated token, when
/// each unit keeps the tokens with the most mass ahead: b = 1 .. P. `future` must reach to the end. No other
/// choice loses less.
std::vector<double> append_losses(const MassAhead& future);

/// Returns what each token after the first gains: [b - 1] = losses[b - 1] - losses[b]. Throws Error(bug)
/// where the curve rises, or a gain exceeds the one before it, by more than 1e-10.
std::vector<double> gains_of(std::span<const double> losses);

/// Returns the least sum of losses of all curves, each at a budget from 1 to `most` (at most its length),
/// with `total` tokens in all: at least one per curve; tokens that the curves cannot use are not spent.
double least_loss(std::span<const std::vector<double>> curves, std::size_t total, std::size_t most);

}  // namespace kvsim::policy
