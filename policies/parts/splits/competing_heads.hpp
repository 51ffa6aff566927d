#pragma once
/// Lets the heads of a layer compete for its budget (Ada-KV, arXiv 2407.11550, Algorithm 1).
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// `gains`: what each further token is worth to each head, falling. Returns how many of the `total` best each
/// head holds, none more than `most`; where the heads have fewer, the rest goes to them in turn.
std::vector<std::size_t> best_of_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                       std::size_t most);
/// The same mixed with an equal share of `total`, of which a part `alpha` counts, to whole numbers by largest
/// remainder.
std::vector<std::size_t> competing_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                         std::size_t most, double alpha);

}  // namespace kvsim::policy
