#pragma once
/// The best permanent eviction there can be: the schedule that retains the most attention among all that keep
/// at most `budget` positions, admit every token at its own step and never take anyone back. No online policy
/// that holds no more in the unit can beat it.
///
/// Choosing how long each token stays, with at most `budget` resident at any step, is a minimum-cost flow
/// along time with an arc for every (token, step). The same optimum is found here from the other side, by who
/// leaves when, which needs no such network:
///  - every step whose token finds the unit full forces one departure (the first step as many as the prompt
///    is too long), so the number of departures before each step is known in advance;
///  - a token that leaves before step s loses the attention it would have received from s on, which only
///    shrinks as s grows, so it never pays to leave before the step that forces it.
/// What remains is an assignment: to every forced departure a distinct token that exists by then, at the
/// price of its mass ahead; the sum of prices is to be least. A unit with one slot less has exactly one
/// departure more. So the optima of all budgets are found one after the other, from room for everything down
/// to a single slot, each by one shortest augmenting path with dual prices (Kuhn 1955; Jonker and Volgenant
/// 1987). A token that leaves under one budget leaves under all smaller ones, if not always at the same step:
/// a path runs over the steps, of which each but the first has one departure, and ends with the cheapest
/// token that stayed so far.
/// Time O((P + S) S (S + log(P + S))) at worst, in practice some tens of scans of S numbers per budget;
/// memory S (P + S) indices.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/parts/retention_plan.hpp"

namespace kvsim::policy {

/// The best schedules of all budgets.
class OptimalRetention {
 public:
  /// `future` sees to the end (horizon kWholeFuture).
  explicit OptimalRetention(const MassAhead& future);

  /// The best schedule of one of them, for the same future. budget >= 1, else Error (bug).
  /// Exact up to the rounding of double sums: no schedule retains more by over about 1e-12 of the attention
  /// there is. Among equally good schedules the choice is fixed by the input.
  RetentionPlan plan(const MassAhead& future, std::size_t budget) const;
  /// [b - 1]: attention on tokens that are not held, summed over the steps, with a budget of b = 1 .. P + S.
  /// It falls with b, by less and less: slots are units of a flow through time.
  const std::vector<double>& losses() const { return losses_; }

  /// A token leaves before a step.
  struct Departure {
    std::uint32_t token, step;
  };

 private:
  std::vector<double> losses_;
  std::vector<Departure> changes_;      ///< from room for everything down to one slot; later ones count
  std::vector<std::size_t> n_changes_;  ///< [b - 1]: those that lead to a budget of b
};

}  // namespace kvsim::policy
