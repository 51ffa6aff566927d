#pragma once
/// What is measured of one answer: of one cell in one mode, beside the full cache's. Numbers that the answer
/// does not have are undefined: those of another mode, and all of a cell that was skipped.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/loop/answer_rows.hpp"
#include "analysis/results/records.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

/// Everything that a row is made of.
struct Answer {
  const AnswerItem& item;
  const sim::LoopRequest& request;
  const sim::LoopOutcome& outcome;
  const sim::Cell& asked;
  const sim::LoopCell& cell;
  std::size_t mode = 0;

  sim::LoopMode loop_mode() const { return request.modes[mode]; }
  bool teacher() const { return loop_mode() == sim::LoopMode::teacher; }
  /// Null: the cell was skipped.
  const sim::StreamOutcome* stream() const { return cell.skipped.empty() ? &cell.modes[mode] : nullptr; }
  const sim::StreamOutcome& reference() const { return outcome.references[cell.first_reference + mode]; }
};

/// The field of an answer's row in a column of answer_columns(), by its number.
Value answer_field(const Answer& answer, std::size_t column);

using Number = std::optional<double>;

// Teacher mode, over the tokens that are fed.

/// KL(full || cell) of each, nats.
std::vector<double> kl(const Answer& answer);
Number mean(const std::vector<double>& values);
/// The value that a share `q` of all values does not exceed (nearest rank).
Number quantile(std::vector<double> values, double q);
/// Share at which cell and full cache find the same token most probable.
Number same_top(const Answer& answer);
/// Log-likelihood of all fed tokens together, nats.
Number log_likelihood(const Answer& answer);
/// Mean of the log-likelihood of a token less the full cache's, nats.
Number delta_log_p(const Answer& answer);
/// Root mean square of the probability of a token less the full cache's.
Number rms_delta_p(const Answer& answer);
/// Tokens that the cell finds more probable than the fed one, mean.
Number rank(const Answer& answer);

/// exp(-mean log p): the perplexity of the fed tokens. Undefined also above what a double holds.
struct Perplexities {
  Number cell, full;
};
Perplexities perplexities(const Answer& answer);

// Greedy mode, of what is generated.

/// Whether it is right by the workload's own rule; of the cell or of the reference.
std::optional<bool> is_right(const Answer& answer, const sim::StreamOutcome* stream);
/// Whether one of the expected answers occurs in it.
std::optional<bool> contains_answer(const Answer& answer);
/// Tokens that agree with the full cache's before the first that does not.
std::optional<std::uint64_t> agreement(const Answer& answer);
/// ROUGE-L (Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries) of the text against the full
/// cache's: F1 of the longest common subsequence of their words, which are runs of letters and digits in
/// lower case, bytes beyond ASCII counted as letters. Undefined where neither has a word or texts are not
/// known.
Number rouge_l(const Answer& answer);
Number rouge_l(const std::string& text, const std::string& reference);
/// By how many logits the full cache's most probable token leads where the two part; undefined: they do not.
Number divergence_margin(const Answer& answer);
/// seq-rep-n of Welleck et al. 2020 (Neural Text Generation with Unlikelihood Training, arXiv
/// 1908.04319), with n = 4: 1 - distinct n-grams / n-grams of the generated tokens. Undefined below 4 tokens.
Number repetition(const Answer& answer);

// Both modes: what the cache holds. An entry is a key and a value of one token in one lane.

struct HeldEntries {
  std::uint64_t end = 0;      ///< after the last fed token
  std::uint64_t peak = 0;     ///< most of: after the cut, and after each fed token
  std::uint64_t evicted = 0;  ///< since the cut
  /// What `end` and `peak` take, as entries are stored; undefined where the item does not say what one takes.
  std::optional<std::uint64_t> end_bytes{}, peak_bytes{};
};
/// Undefined also where the item does not say how many lanes there are.
std::optional<HeldEntries> held_entries(const Answer& answer);
/// What a step reads, mean over fed tokens. Without a selection it is all that is held.
struct ReadEntries {
  double read_tokens = 0;  ///< of a query head, mean over all
  /// Of what the query heads of a KV head load together, and of the index; undefined as
  /// HeldEntries::end_bytes.
  std::optional<double> read_bytes{};
  std::optional<double> index_bytes{};  ///< that the index takes at the end; undefined without a selection
};
/// Undefined as held_entries().
std::optional<ReadEntries> read_entries(const Answer& answer);
/// Entries that were held while tokens were fed, as a share of those of the full cache.
Number entry_steps(const Answer& answer);

// What a replay says of the cells that answered: their losses on the full cache's own run, beside the
// answers.

/// The metrics of a replay that stand beside answers, by their keys (analysis/results/METRICS.md).
const std::vector<ColumnInfo>& loss_columns();

/// One row of loss_columns() per cell of the request. `sequence`: a prompt and the answer that was fed to it.
std::vector<std::vector<Value>> replayed_losses(const trace::Sequence& sequence, const sim::Request& request);

}  // namespace kvsim::analysis
