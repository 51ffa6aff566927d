#pragma once
/// What a replay says of the cells that answered: their losses on the full cache's own run, beside the
/// answers.
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

/// The metrics of a replay that stand beside answers, by their keys (analysis/results/METRICS.md).
const std::vector<ColumnInfo>& loss_columns();

/// One row of loss_columns() per cell of the request. `sequence`: a prompt and the answer that was fed to it.
std::vector<std::vector<Value>> replayed_losses(const trace::Sequence& sequence, const sim::Request& request);

}  // namespace kvsim::analysis
