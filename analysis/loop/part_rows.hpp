#pragma once
/// Tidy rows of a closed loop per layer or token of an answer. They begin with the columns of the answer's
/// own row that say which answer it is, join with it on them, and end with why there is none.
#include <span>
#include <string>
#include <vector>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/loop/answer_rows.hpp"
#include "analysis/results/records.hpp"
#include "sim/replay/pieces.hpp"
#include "traces/capture/workload_item.hpp"

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

// Tidy rows of how far assembled prompts are from the ones that are read whole (sim/replay/pieces.hpp).

const std::vector<ColumnInfo>& seam_columns();

std::vector<std::vector<Value>> seam_rows(const capture::WorkloadItem& item, const std::string& model,
                                          const std::string& prefill, std::span<const sim::SeamError> errors);

// Tidy rows of cells that draft for the full cache (sim::LoopMode::draft): how much of it was accepted, and
// what drafting read. They begin with the columns of answer_columns() that say which cell it is.

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
