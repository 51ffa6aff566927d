#pragma once
/// Computes what it costs to drop positions in a given order: HashEvict's cumulative attention loss, and the
/// area that it calls attention loss ratio.
#include <span>
#include <vector>

namespace kvsim::sim {

/// Returns the attention of the position that is dropped first, second, and so on, lowest score first.
/// Positions with equal scores are dropped in random order, so each gets the mean of their attention, which
/// is its expectation. `scores` and `attention` have the same length; no score is NaN.
std::vector<double> attention_in_drop_order(std::span<const double> attention,
                                            std::span<const double> scores);

/// Returns the attention in the order that loses least, lowest first. Reversed, it is the order that loses
/// most.
std::vector<double> least_attention_first(std::span<const double> attention);

/// Returns L^m for m = 0 ... dropped.size(): the attention of the first m dropped positions.
std::vector<double> cumulative_loss(std::span<const double> dropped);

/// Returns Y = sum over m of L^m of `dropped` - L^m of `least`, for two orders of one lane: 0 for the least
/// itself, never negative.
double excess_area(std::span<const double> dropped, std::span<const double> least);

}  // namespace kvsim::sim
