#pragma once
/// Tidy rows of a closed loop: one per item, cell and mode, with what the model answered through the
/// compressed cache and how far its predictions are from the full cache's. They join with rows of a replay on
/// policy, params, budget, cut and seed. Columns and formulas: analysis/README.md.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "sim/loop/closed_loop.hpp"

namespace kvsim::analysis {

/// What a row says of the prompt besides what the loop measured.
struct AnswerItem {
  std::string item, workload, model;
  std::uint64_t turn = 0;              ///< number of the question about its context
  std::vector<std::string> answers{};  ///< expected; empty: nothing to be right about
  /// Text of generated tokens; null: not known, and no answer is judged.
  std::function<std::string(const std::vector<std::int32_t>&)> text;
  /// Whether a text is right by the workload's own rule; null: nothing is.
  std::function<bool(const std::string&)> right;
  std::uint64_t lanes = 0;  ///< of the cache: layers times KV heads; 0: not known, and nothing is counted
  std::uint64_t token_bytes = 0;  ///< key and value of one token in one lane; 0: not known, and no bytes are
  std::uint64_t full_token_bytes = 0;  ///< the same of the full cache that verifies drafts
  std::uint64_t draft_documents = 0;   ///< that the drafter reads; 0: all
  std::string drafter{};               ///< the name of another model that drafts
};

const std::vector<ColumnInfo>& answer_columns();

/// What rows have besides where prompts are put together of documents.
const std::vector<ColumnInfo>& assembly_columns();

/// Rows of one item, by cell in the order of the request and by mode; skipped cells have rows with null
/// metrics. They have assembly_columns(), too, where the request's prompt is an assembled one.
std::vector<std::vector<Value>> answer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                            const sim::LoopOutcome& outcome);

/// Means over items, per workload, cut and budget, a row per policy: what people read first. Means of
/// `right`, `kept` and `kl` have 95 % bootstrap intervals over items (Resamples). `rows` have
/// answer_columns(). Policies are in order of `right`, then of `kl`; where the full cache answers less than
/// `least_full` of the questions, in order of `kept`, or of the request where it answers less than
/// kLeastAnswered. Where nothing was judged, `kl` orders alone.
Records answer_summary(const Records& rows, double least_full = kLeastFull);

/// A line for each workload and cut without a ranking by `right`, with what the full cache answers, and one
/// that says why; nothing where all are ranked.
std::vector<std::string> unranked_notes(const Records& rows, double least_full = kLeastFull);

}  // namespace kvsim::analysis
