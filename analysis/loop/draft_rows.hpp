#pragma once
/// Tidy rows of cells that draft for the full cache (sim::LoopMode::draft): how much of it was accepted, and
/// what drafting read. They begin with the columns of answer_columns() that say which cell it is.
#include <vector>

#include "analysis/loop/answer_rows.hpp"

namespace kvsim::analysis {

/// A row per item and cell.
const std::vector<ColumnInfo>& draft_columns();
std::vector<std::vector<Value>> draft_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome);

/// A row per drafted token that was tested; one where the cell was skipped.
const std::vector<ColumnInfo>& drafted_token_columns();
std::vector<std::vector<Value>> drafted_token_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                                   const sim::LoopOutcome& outcome);

/// Means over items, per workload, cut and budget, a row per policy, with intervals as in answer_summary().
/// `rows` have draft_columns().
Records draft_summary(const Records& rows);

}  // namespace kvsim::analysis
