#pragma once
/// How far the closed loop's state has drifted from the full cache's, layer by layer, and its predictions,
/// token by token, as rows of `kvsim evaluate --per layer|token` and figures of them name it.
#include <vector>

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// residual_l2, residual_cosine, query_l2: undefined outside teacher mode, and measured by no replay, so that
/// metrics() does not have them.
const std::vector<Metric>& drift_metrics();
/// Throws Error(usage) with the nearest names.
const Metric& drift_metric(std::string_view key);

/// The numbers of a token of an answer: kl, rank, same_top, of rows of `kvsim evaluate --per token`.
const std::vector<Metric>& token_metrics();
/// Throws Error(usage) with the nearest names.
const Metric& token_metric(std::string_view key);

/// The name of the table of such rows among those that figures are made of.
inline constexpr const char* kDriftTable = "drift";
inline constexpr const char* kTokensTable = "tokens";
/// The columns that figures read of it: what tells rows apart, `layer` or `index`, and the metrics.
std::vector<ColumnInfo> drift_columns();
std::vector<ColumnInfo> token_part_columns();
/// Whether a table holds such rows.
bool holds_drift_rows(const Records& table);
bool holds_token_rows(const Records& table);

}  // namespace kvsim::analysis
