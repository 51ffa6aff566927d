#pragma once
/// Measures whether important positions stay important: Scissorhands' persistence of importance.
#include <cstdint>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

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
