#pragma once
/// Sums the times of many decode steps from few of them: between the steps at which a lane reaches its limit,
/// a step's time is nearly a quadratic of its number.
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/cost/latency.hpp"

namespace kvsim::cost {

/// Returns pass(first) + ... + pass(last). Between neighbours of `breaks` (any order, any values) each piece
/// is summed as the quadratic through three of its steps; a piece where two more steps differ from it by more
/// than a thousandth of a percent is halved, and short pieces are added up step by step.
PassTime sum_steps(std::uint64_t first, std::uint64_t last, std::vector<std::uint64_t> breaks,
                   const std::function<PassTime(std::uint64_t)>& pass);

}  // namespace kvsim::cost
