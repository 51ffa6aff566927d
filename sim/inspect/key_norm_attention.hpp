#pragma once
/// Measures the norm of each key of the prompt, and the attention that the key gets.
#include <functional>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// The numbers of one lane, per prompt position.
struct KeyNormAttention {
  std::vector<double> norm;       ///< Euclidean, of the key as it is cached
  std::vector<double> attention;  ///< mean over the prompt rows that see the position, and over query heads
};

/// Calls `look` once for every lane (layer-major index), from any thread; at most one lane per thread is in
/// memory. Throws Error(usage) for a trace that lacks queries of the prompt, Error(input) when it is damaged.
void for_key_norm_attention(const trace::Sequence& sequence, unsigned threads, Progress& progress,
                            const std::function<void(std::size_t lane, const KeyNormAttention&)>& look);

}  // namespace kvsim::sim
