#pragma once
/// Tidy rows of a closed loop in teacher mode, one per layer: how far the model's state has drifted from the
/// full cache's on its way through the layers. They begin with the keys of the answer's row.
#include <vector>

#include "analysis/loop/answer_rows.hpp"

namespace kvsim::analysis {

const std::vector<ColumnInfo>& layer_columns();

/// Rows of one item, by cell in the order of the request and layer; greedy mode has none. A skipped cell has
/// one row per mode with the reason.
std::vector<std::vector<Value>> layer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome);

}  // namespace kvsim::analysis
