#pragma once
/// Computes XKV's importance w of prompt positions, layer by layer, by which its allocation divides the
/// budget (arXiv 2412.05896, Fig. 2 and Algorithm 1).
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

}  // namespace kvsim::sim
