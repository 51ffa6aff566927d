#pragma once
/// Where each query head attends, and how the norms of keys go with the attention that they get.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// Measures where each query head attends: at the first positions, at the last, and how widely.
struct HeadStudy {
  std::size_t rows = 64;   ///< last prompt rows, at most the prompt; rows of generated tokens are added
  std::size_t sinks = 4;   ///< first positions of the sequence
  std::size_t local = 32;  ///< last positions, up to the row's own
  unsigned threads = 0;    ///< 0: as many as the machine has. Never changes a result.
};

/// The means over the rows of one query head.
struct HeadAttention {
  double sink = 0;      ///< attention on the first positions
  double local = 0;     ///< positions that are also first count in both
  double entropy = 0;   ///< bits, of the row
  double distance = 0;  ///< tokens between the row and what it attends
  double largest = 0;   ///< largest attention on one position
  /// Entropy over log2 of the number of positions that the row sees, over the rows that see more than one;
  /// none for a head without such rows.
  std::optional<double> entropy_share;
};

struct HeadsFound {
  std::uint64_t rows = 0;            ///< rows that every head is averaged over
  std::vector<HeadAttention> heads;  ///< query heads, layer-major
};

/// Returns the statistics of every query head. Throws Error(usage) when there is no row, or the trace lacks
/// the query of one; Error(input) when the trace is damaged.
HeadsFound head_attention(const trace::Sequence& sequence, const HeadStudy& study, Progress& progress);

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
