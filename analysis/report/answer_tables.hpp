#pragma once
/// Tables of answers for people.
#include "analysis/report/answer_evidence.hpp"
#include "analysis/report/sortable_table.hpp"

namespace kvsim::analysis {

/// Every policy at a budget: accuracy with its interval, KL, and beside them what a replay measured on the
/// same items. Without rows if nothing was answered there.
SortableTable answers_beside_losses(const AnswerEvidence& answers, const std::string& budget);

}  // namespace kvsim::analysis
