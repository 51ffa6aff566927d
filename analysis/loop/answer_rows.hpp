#pragma once
/// Tidy rows of a closed loop: one per item, cell and mode, with what the model answered through the
/// compressed cache and how far its predictions are from the full cache's. They join with rows of a replay on
/// policy, params, budget, cut and seed. Formulas: analysis/results/METRICS.md.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/loop/closed_loop.hpp"

namespace kvsim::analysis {

/// What a row says of the prompt besides what the loop measured.
struct AnswerItem {
  std::string item, workload, model;
  std::vector<std::string> answers{};  ///< expected; empty: nothing to be right about
  /// Text of generated tokens; null: not known, and no answer is judged.
  std::function<std::string(const std::vector<std::int32_t>&)> text;
  /// Whether a text is right by the workload's own rule; null: nothing is.
  std::function<bool(const std::string&)> right;
};

const std::vector<ColumnInfo>& answer_columns();

/// Rows of one item, by cell in the order of the request and by mode; skipped cells have rows with null
/// metrics.
std::vector<std::vector<Value>> answer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                            const sim::LoopOutcome& outcome);

/// Means over items, per cut, budget and policy: what people read first. `rows` have answer_columns().
Records answer_summary(const Records& rows);

}  // namespace kvsim::analysis
