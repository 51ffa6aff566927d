#pragma once
/// Where each query head looks: at the first positions, at the last, and how widely.
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

struct HeadStudy {
  std::size_t rows = 64;   ///< of the last prompt queries, at most the prompt; generated tokens' come besides
  std::size_t sinks = 4;   ///< first positions of the sequence
  std::size_t local = 32;  ///< last positions up to the row's own
  unsigned threads = 0;    ///< 0: as many as the machine has. Never changes a result.
};

/// Means over the rows of one query head.
struct HeadAttention {
  double sink = 0;      ///< attention on the first positions
  double local = 0;     ///< attention on the last positions; those that are first too count in both
  double entropy = 0;   ///< bits
  double distance = 0;  ///< tokens between the row and what it attends
  double largest = 0;   ///< largest attention on one position
  /// Entropy over log2 of the positions that the row sees; rows that see one position have none, nor has a
  /// head with no other rows.
  std::optional<double> entropy_share;
};

struct HeadsFound {
  std::uint64_t rows = 0;            ///< that were looked at, for every head
  std::vector<HeadAttention> heads;  ///< query heads, layer-major
};

/// Throws Error(usage) when there is no row to look at or the trace lacks its query; Error(input) when the
/// trace is damaged.
HeadsFound head_attention(const trace::Sequence& sequence, const HeadStudy& study, Progress& progress);

}  // namespace kvsim::sim
