#pragma once
/// How much a unit loses as a function of its budget, and how a total is best split over several such curves.
///
/// A curve has at [b - 1] the attention on tokens that are not resident, summed over the measured steps, with
/// a budget of b = 1, 2, ... tokens. The curves here are convex: each further token gains no more than the
/// one before. So taking the largest gain of all units again and again ends with the best split.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/parts/oracles/mass_ahead.hpp"

namespace kvsim::policy {

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
