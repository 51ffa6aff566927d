#pragma once
/// Computes XKV's importance w of prompt positions, layer by layer, by which its allocation divides the
/// budget (arXiv 2412.05896, Fig. 2 and Algorithm 1).
#include <cstdint>
#include <vector>

#include "policies/parts/rows/pooling.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

struct ImportanceStudy {
  std::size_t rows = 8;  ///< last prompt rows, at least 1
  policy::Pooling pooling{policy::Pooling::Kind::average, 7};
  unsigned threads = 0;  ///< 0: as many as the machine has. Never changes a result.
};

/// Returns, per layer, w of positions [0, P - rows): the mean over all query heads of
/// policies/parts/window_importance. It is not divided by its sum; a layer whose last rows see none of these
/// positions is all zeros. At most one lane per thread is in memory. Throws Error(usage) for a prompt of at
/// most `rows` tokens and for a trace that lacks their queries; Error(input) when the trace is damaged or its
/// attention cannot be computed.
std::vector<std::vector<double>> layer_importance(const trace::Sequence& sequence,
                                                  const ImportanceStudy& study, Progress& progress);

// Measures whether important positions stay important: Scissorhands' persistence of importance.

/// A position is pivotal in a row when the row pays it more than `times` the average.
struct PersistenceStudy {
  std::size_t split = 1;  ///< t: rows before it are early, the others late; in [1, length - 1]
  std::size_t early_rows = 0, late_rows = 0;  ///< most rows next to the split; 0: all
  enum class Average {
    row,    ///< 1 / positions that the row sees
    split,  ///< 1 / t, for every row
  };
  Average average = Average::row;
  double times = 1;
  unsigned threads = 0;  ///< 0: as many as the machine has. Never changes a result.
};

/// The counts of one lane, whose rows are averaged over its query heads: the positions before the split that
/// are pivotal in some early row, in some late row, and in rows of both kinds.
struct LanePersistence {
  std::uint64_t early = 0, late = 0, both = 0;
};

/// Returns the counts per lane, layer-major. Rows are the prompt's and the generated tokens'. Throws
/// Error(usage) for a split that leaves no early or no late row, or a trace that lacks the rows' queries;
/// Error(input) when it is damaged.
std::vector<LanePersistence> persistence(const trace::Sequence& sequence, const PersistenceStudy& study,
                                         Progress& progress);

}  // namespace kvsim::sim
