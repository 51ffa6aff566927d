#pragma once
/// What it costs to drop positions in some order: HashEvict's cumulative attention loss and the area that it
/// calls attention loss ratio.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::sim {

/// Attention of the position that is dropped first, second, ...: lowest score first. Where positions tie, the
/// order among them is drawn by lot, and each gets the mean: what is expected. As many scores as attention;
/// no score is NaN.
std::vector<double> attention_in_drop_order(std::span<const double> attention,
                                            std::span<const double> scores);

/// The order that loses least: lowest attention first. Backwards it is the order that loses most.
std::vector<double> least_attention_first(std::span<const double> attention);

/// L^m for m = 0 ... dropped.size(): attention that the first m dropped positions had.
std::vector<double> cumulative_loss(std::span<const double> dropped);

/// Y = sum over m of L^m of `dropped` - L^m of `least`, of one lane in two orders: 0 for the least itself,
/// never negative.
double excess_area(std::span<const double> dropped, std::span<const double> least);

}  // namespace kvsim::sim
