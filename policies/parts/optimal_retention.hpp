#pragma once
/// The best permanent eviction there can be: the schedule that retains the most attention among all that keep
/// at most `budget` positions, admit every token at its own step and never take anyone back. No online policy
/// can beat it.
///
/// Choosing how long each token stays, with at most `budget` resident at any step, is a minimum-cost flow
/// along time with an arc for every (token, step). The same optimum is found here from the other side, by who
/// leaves when, which needs no such network:
///  - every step whose token finds the unit full forces one departure (the first step as many as the prompt
///  is
///    too long), so the number of departures before each step is known in advance;
///  - a token that leaves before step s loses the attention it would have received from s on, which only
///    shrinks as s grows, so it never pays to leave before the step that forces it.
/// What remains is an assignment: to every forced departure a distinct token that exists by then, at the
/// price of its mass ahead; the sum of prices is to be least. It is solved by shortest augmenting paths with
/// dual prices (Kuhn 1955; Jonker and Volgenant 1987), one path per departure after the first step; the
/// departures of the first step share one row, as in a transportation problem. Time O(S^2 (P + S)) at worst,
/// in practice some tens of scans of P + S numbers per step; memory S (P + S) doubles.
#include <cstddef>

#include "policies/parts/retention_plan.hpp"

namespace kvsim::policy {

/// `future` sees to the end (horizon kWholeFuture). budget >= 1, else Error (bug).
/// Exact up to the rounding of double sums: no schedule retains more by over about 1e-12 of the attention
/// there is. Among equally good schedules the choice is fixed by the input.
RetentionPlan optimal_retention(const MassAhead& future, std::size_t budget);

}  // namespace kvsim::policy
