#pragma once
/// XKV's importance w of the prompt's positions, the vector behind R, R_avg and ISR (and SnapKV's score).
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/allocation.hpp"
#include "sim/base/matrix_view.hpp"
#include "traces/sequence.hpp"

namespace kvsim::sim {

/// w of one lane: mean over its query heads and over the last `spec.window` prompt rows of the attention on
/// each position before those rows, average-pooled (zero padding counted in the divisor). Length P - window;
/// empty when the prompt is not longer than the window or the trace lacks those query rows. `keys`: the
/// lane's, at least P rows.
std::vector<float> lane_importance(const trace::Sequence& sequence, std::uint32_t layer,
                                   std::uint32_t kv_head, MatrixView keys,
                                   const policy::ImportanceSpec& spec);

/// prefix[n] = sum of the n largest entries, n = 0 .. w.size().
std::vector<double> largest_sums(std::span<const float> w);

}  // namespace kvsim::sim
