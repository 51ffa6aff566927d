#pragma once
/// Tidy rows of a closed loop per layer or token of an answer. They begin with the columns of the answer's
/// own row that say which answer it is, join with it on them, and end with why there is none.
#include <vector>

#include "analysis/loop/answer_rows.hpp"

namespace kvsim::analysis {

/// Of teacher mode, how far the model's state has drifted from the full cache's on its way through the
/// layers.
const std::vector<ColumnInfo>& layer_columns();

/// Rows of one item, by cell in the order of the request and layer; greedy mode has none. A skipped cell has
/// one row per mode with the reason.
std::vector<std::vector<Value>> layer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome);

/// What answer_rows() summarises.
const std::vector<ColumnInfo>& token_columns();

/// Rows of one item, by cell in the order of the request, mode and token. A skipped cell has one row per mode
/// with the reason.
std::vector<std::vector<Value>> token_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome);

}  // namespace kvsim::analysis
