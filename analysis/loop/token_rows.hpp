#pragma once
/// Tidy rows of a closed loop, one per token of the answer: what answer_rows() summarises. They begin with
/// the keys of the answer's row, and join with it on them.
#include <vector>

#include "analysis/loop/answer_rows.hpp"

namespace kvsim::analysis {

const std::vector<ColumnInfo>& token_columns();

/// Rows of one item, by cell in the order of the request, mode and token. A skipped cell has one row per mode
/// with the reason.
std::vector<std::vector<Value>> token_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome);

}  // namespace kvsim::analysis
