#pragma once
/// What answers of the closed loop say of policies, as statistics take it: by item, with one row for all
/// modes. `answers` have the columns of the rows of kvsim evaluate (analysis/README.md).
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// The numbers of the closed loop that policies are compared by, the most telling first: right (accuracy),
/// kept, kl and same_top. They are measured by no replay, so metrics() does not have them.
const std::vector<Metric>& answer_metrics();
/// Throws Error(bug) for a key that none has.
const Metric& answer_metric(std::string_view key);

/// The role of a policy where rows do not say it, as those of kvsim evaluate do not: the full cache has its
/// own budget, any other counts as a policy.
std::string assumed_role(const std::string& params);

/// Rows as statistics_of() takes them, `item` as `trace`, with answer_metrics() and `held_bytes`: one per
/// item, cell and seed. `right` is undefined for workloads whose full cache answers less than `least_full` of
/// the items at the cut: where the model itself fails, wrong answers are not the policy's. `roles`: by
/// params, as in results; assumed_role() for others.
Records comparable_answers(const Records& answers, const std::map<std::string, std::string>& roles,
                           double least_full);

/// Rows of `answers` whose workload has means of `by` at their cut: those that policies are ranked by.
/// `means`: of statistics_of().
Records ranked_answers(const Records& answers, const Records& means, std::string_view by = "right");

/// The name of the table of answers in the folder of a study.
inline constexpr const char* kAnswersTable = "answers";

// How far the closed loop's state has drifted from the full cache's, layer by layer, and its predictions,
// token by token, as rows of `kvsim evaluate --per layer|token` and figures of them name it.

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
