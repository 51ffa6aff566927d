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
/// token that stayed so far, which a heap for each step has ready.
/// Time O((P + S) (S^2 + S log(P + S))) for all budgets at worst, in practice some tens of scans of S numbers
/// for each; memory S (P + S) indices.
#include <cstddef>
#include <vector>

#include "policies/parts/retention_plan.hpp"

namespace kvsim::policy {

/// `future` sees to the end (horizon kWholeFuture). budget >= 1, else Error (bug).
/// Exact up to the rounding of double sums: no schedule retains more by over about 1e-12 of the attention
/// there is. Among equally good schedules the choice is fixed by the input.
RetentionPlan optimal_retention(const MassAhead& future, std::size_t budget);

/// What those schedules lose, for all budgets at once: [b - 1] is the attention on tokens that are not held,
/// summed over the steps, with a budget of b = 1 .. P + S. It falls with b, by less and less (slots are units
/// of a flow through time).
std::vector<double> optimal_losses(const MassAhead& future);

}  // namespace kvsim::policy
