#pragma once
/// What a unit loses as a function of its budget, and how a total is best split over several such curves.
///
/// A curve has at [b - 1] the attention on tokens that are not held, summed over the measured steps, with a
/// budget of b = 1, 2, ... tokens. The curves here are convex: a token more gains no more than the one before
/// it did. So taking the largest gain of all units again and again ends with the best split there is.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/parts/mass_ahead.hpp"

namespace kvsim::policy {

/// Of units that hold b tokens of the prompt, chosen once, and every generated token, when each holds those
/// with the most mass ahead: b = 1 .. P. `future` sees to the end. No other choice loses less.
std::vector<double> append_losses(const MassAhead& future);

/// What each token after the first gains: [b - 1] = losses[b - 1] - losses[b]. Throws Error(bug) where the
/// curve rises, or a gain exceeds the one before it, by more than 1e-10.
std::vector<double> gains_of(std::span<const double> losses);

/// The least sum of losses of all curves, each at a budget from 1 to `most` (at most its length), with
/// `total` tokens in all: at least one per curve, what the curves cannot use is left.
double least_loss(std::span<const std::vector<double>> curves, std::size_t total, std::size_t most);

}  // namespace kvsim::policy
