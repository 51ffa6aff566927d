#pragma once
/// Keys of the prompt, and the attention they get.
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// Of one lane, per prompt position.
struct KeyNormAttention {
  std::vector<double> norm;       ///< Euclidean, of the key as the cache holds it
  std::vector<double> attention;  ///< mean over the prompt rows that see the position, and over query heads
};

/// Calls `look` once for every lane (layer-major index), from any thread: no more than one lane per thread is
/// held. Throws Error(usage) for a trace that lacks queries of the prompt, Error(input) when it is damaged.
void for_key_norm_attention(const trace::Sequence& sequence, unsigned threads, Progress& progress,
                            const std::function<void(std::size_t lane, const KeyNormAttention&)>& look);

}  // namespace kvsim::sim
