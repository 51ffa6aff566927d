#pragma once
/// Replays a recorded run on every cell in one pass. The replay is open loop: it answers each recorded query
/// exactly as the compressed cache would, and does not see what that answer would change later.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/attention/importance_rule.hpp"
#include "sim/attention/prompt_attention.hpp"
#include "sim/attention/prompt_segments.hpp"
#include "sim/base/progress.hpp"
#include "sim/feed/index_store.hpp"
#include "sim/replay/budget.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// One (policy, parameters, budget) to evaluate.
struct Cell {
  policy::Composition composition;
  Budget budget;
};

struct Request {
  std::vector<Cell> cells;
  std::uint64_t seed = 0;
  unsigned threads = 0;       ///< 0: as many as the machine has. Never changes a result.
  bool decisions = false;     ///< record when each position is resident
  bool each_step = false;     ///< also record every measured step by itself
  bool scores = false;        ///< record how each lane ranks the prompt
  ImportanceRule importance;  ///< the w behind R, R_avg and ISR
  PeakRule peak;              ///< which rows count for peak loss
  bool bounds = false;        ///< compute CellOutcome::attention_loss_bound: an oracle's work per lane
  const policy::Tables* tables = nullptr;  ///< the files that policies' parameters name; may be null
};

/// Attention that is paid to some keys, and the part of it that falls on keys that are no longer resident.
struct PaidAttention {
  double paid = 0, dropped = 0;

  PaidAttention& operator+=(const PaidAttention& other) {
    paid += other.paid;
    dropped += other.dropped;
    return *this;
  }
};

/// One measured step of one lane.
struct StepOutcome {
  double attention_loss = 0, attention_loss_oracle = 0;  ///< as summed in LaneOutcome
  std::uint64_t held = 0;  ///< positions attended, the step's own token included
  PaidAttention evidence{};
  double total_variation = 0;  ///< as summed in StoredOutcome; only of a lane that has one
  // As summed in ReadOutcome; only of a lane that has one.
  double read_tokens = 0, recall = 0;
  std::uint64_t loaded_tokens = 0, hits = 0;
  double index_bits_read = 0;
};

/// Measurements of a lane whose queries read a part of what is stored.
struct ReadOutcome {
  double read_tokens = 0;    ///< sum over steps of the mean over query heads of the tokens that one reads
  double loaded_tokens = 0;  ///< sum over steps of the tokens that the lane's query heads read together
  double later_loaded_tokens = 0;  ///< the same without the first step
  double hits = 0;                 ///< of those, tokens that were read at the step before, too
  /// Sum over steps of the mean over query heads of the share of the recorded row's largest entries, as many
  /// as the head reads, that it reads.
  double recall = 0;
  /// Of all lanes of the unit, each lane its part: sum over steps of what choosing has read of the index, and
  /// what the index takes at the last step.
  double index_bits_read = 0, index_bits = 0;
};

/// Measurements of a lane whose numbers a representation stores. Rows and logits are of every query head by
/// itself; the recorded row is compared with the row over what is stored, where a token that is not held has
/// 0.
struct StoredOutcome {
  double total_variation =
      0;  ///< sum over steps of the mean over query heads of half the sum of |differences|
  double logit_squares =
      0;  ///< sum over steps, query heads and held tokens of the squared difference of logits
  std::uint64_t logits = 0;  ///< how many these are
  double top_overlap = 0;  ///< sum over steps of the mean over query heads of the share of the recorded row's
                           ///< kTopTokens largest entries that are among as many of the stored row's
  double key_error = 0, value_error = 0;  ///< at the last step: |stored - recorded|^2 over the held tokens
  double key_squares = 0, value_squares = 0;  ///< at the last step: |recorded|^2
  /// After the prompt, and at the last step: of all lanes of the unit, each lane its part.
  double kept_bits = 0, held_bits = 0;
  /// The same of what sending the prompt takes (policy::Codec::sent_bits); none: the codec does not say.
  std::optional<double> sent_bits{};
};
inline constexpr std::size_t kTopTokens = 32;

/// How the values that a row has lost differ from those that it keeps, over the rows of steps and query heads
/// that lose some attention and keep some. With m the share that is lost, v_E and v_K the means of evicted
/// and of kept values by attention, a sink's zeros among the kept: o' = v_K, o - o' = m (v_E - v_K). A row
/// weighs min(m / kWholeRow, 1): of one that has lost next to nothing, v_E is mostly rounding.
struct DirectionOutcome {
  double weight = 0;  ///< sum of the rows' weights
  double error = 0;   ///< sum of weight times |v_E - v_K| / |o|
  double cosine = 0;  ///< sum of weight times the cosine of v_E to v_K
};
/// A row that has lost this share of its attention, or more, has weight 1.
inline constexpr double kWholeRow = 0.01;

/// Peak loss and its variants (sim/attention/prompt_attention.hpp), over all counted rows of a lane.
struct PeakOutcome {
  PaidAttention plain;                 ///< rows that reach PeakRule::threshold
  PaidAttention weighted;              ///< the same, every row times its peak
  PaidAttention low;                   ///< rows that reach PeakRule::low
  double dropped_times_error = 0;      ///< of `plain`: sum of dropped times the row's output error
  std::vector<PaidAttention> heads{};  ///< [group]: `plain` by query head
};

/// The measurements of one lane under one cell. They are sums, so that those of a larger scope are sums too;
/// analysis/results/rows.hpp divides them.
struct LaneOutcome {
  std::uint64_t budget_tokens = 0;  ///< what the allocation gave the lane
  std::uint64_t kept_tokens = 0;    ///< positions resident after the prompt
  std::uint64_t held_at_end = 0;    ///< positions resident at the last step
  std::uint64_t whole_at_end = 0;   ///< the same of the full cache: no more than the layer's window
  SegmentCounts kept_of{};          ///< kept_tokens by kind of token
  // Importance, mean over the lane's query heads: XKV's w over the last 8 prompt rows with average pooling 7,
  // of the positions before those rows, unless Request::importance says otherwise.
  std::uint64_t candidates = 0;       ///< M, positions that have a w
  std::uint64_t kept_candidates = 0;  ///< n of R(n): resident positions that have a w
  double importance = 0;              ///< sum of w
  double importance_kept = 0;         ///< sum of w over resident positions
  double importance_oracle = 0;       ///< sum of the kept_candidates largest w
  // Measured steps: true rows averaged over the lane's query heads.
  std::uint64_t steps = 0;
  std::uint64_t attended_tokens = 0;  ///< sum over steps of the positions attended or, with a selection, held
  double attention_loss = 0;          ///< sum over steps of 1 - retained mass
  double attention_loss_oracle = 0;   ///< the same for the per-step best set of the same size
  double oracle_cosine = 0;           ///< sum over steps of the cosine of the resident set to the best set
  PaidAttention evidence{};           ///< attention on evidence tokens, over steps
  std::vector<std::uint8_t> holds_evidence{};  ///< [evidence tokens]: resident at the last step, 0 or 1
  std::uint64_t evidence_in_sight = 0;         ///< evidence tokens that a full cache holds at the last step
  /// A bit per prompt token, the first in the lowest bit of the first word: resident at the last step.
  std::vector<std::uint64_t> holds_prompt{};
  // Measured steps: every query head by itself.
  PeakOutcome peak{};
  double output_error = 0;   ///< sum over steps of the mean over query heads of |o' - o| / |o|, where the
                             ///< compressed cache computes o' instead of o
  double output_cosine = 0;  ///< the same of the cosine of o' to o
  DirectionOutcome direction{};
  std::vector<StepOutcome> each_step{};  ///< [steps]; empty without Request::each_step
  /// Of a cell with a representation: attention, evidence, peaks and direction, which speak of what is no
  /// longer held, are not measured then.
  std::optional<StoredOutcome> stored{};
  /// Of a cell with a selection. Attention, evidence, peaks and direction speak of what is not read then,
  /// query head by query head, and the oracles read as many tokens.
  std::optional<ReadOutcome> read{};
  /// Generated tokens are appended beside the budget: no decoder manages the lane, or the lane never evicts.
  bool appends = false;
};

/// What the heads of one layer together give the model under one cell: outputs after the output projection.
struct LayerOutcome {
  double projected_error = 0;   ///< sum over steps of |W (o' - o)| / |W o|
  double projected_cosine = 0;  ///< sum over steps of the cosine of W o' to W o
};

/// How a lane's policy ranks the prompt.
struct PromptScores {
  /// Of every position from `first` on, higher is kept; lanes and budgets share it. Null: it ranks by no
  /// score.
  std::shared_ptr<const std::vector<double>> of{};
  policy::Protection protection{};
  std::size_t first = 0;  ///< the first that the layer's window still holds
};

struct CellOutcome {
  std::string skipped;                 ///< why the cell is not run; empty if it is
  std::uint64_t budget_tokens = 0;     ///< mean per lane, as asked
  double asked_tokens = 0;             ///< the same, not rounded: windows limit some lanes
  std::uint64_t most_given = 0;        ///< to a lane that is not left to grow: the prompt, or a larger budget
  std::vector<LaneOutcome> lanes;      ///< [n_layers * n_kv_heads], layer-major; empty when skipped
  std::vector<LayerOutcome> layers{};  ///< [n_layers]; empty when skipped or without output weights
  std::vector<std::vector<ResidentInterval>>
      resident_intervals;              ///< per lane, by position then first; only with Request::decisions
  std::vector<PromptScores> scores{};  ///< per lane; only with Request::scores
  // Over all lanes together, where the oracles of LaneOutcome keep the policy's own split:
  std::optional<policy::Holding> holding{};  ///< none if the policy decides by itself how much it keeps
  /// The largest R_avg of any choice of as many prompt tokens, however they are spread over lanes.
  std::optional<double> r_bound{};
  /// The least attention loss, as mean over lanes and steps, of any schedule and any split of the total that
  /// the allocation gives out, for policies of the same holding. No lane has more than the prompt, or than
  /// the mean budget where that is more. Only with Request::bounds and decode steps.
  std::optional<double> attention_loss_bound{};
};

struct Outcome {
  std::uint64_t prompt = 0, decode = 0;  ///< tokens before and after the cut
  std::uint64_t first_step = 1;  ///< the first measured: 0 if the last prompt row is measured too, else 1
  std::string cut{};             ///< as trace::Cut::text()
  std::uint64_t instruction_before = 0;  ///< trace::Sequence::instruction_before()
  std::uint64_t evidence_tokens = 0;     ///< in the sequence; 0 if the trace flags none
  SegmentCounts segment_tokens{};        ///< of the prompt, by kind
  std::uint32_t n_layers = 0, n_kv_heads = 0;
  std::string workload{};           ///< kind of prompt, as the trace says; empty: not known
  std::uint64_t token_bytes = 0;    ///< K and V of one token in one lane, as the trace stores them
  std::uint64_t token_numbers = 0;  ///< how many numbers these are
  std::vector<CellOutcome> cells;   ///< in the order of Request::cells

  std::uint64_t measured_steps() const { return decode + 1 - first_step; }
};

/// Replays `sequence` on every cell of `request`. A cell that cannot run on this trace is skipped with the
/// reason: its budget is below what its policy always keeps, or the trace lacks queries that the policy
/// needs. Throws Error(usage) when there is no cell at all, Error(input) when the trace cannot be replayed or
/// is damaged, and Error(interrupted) when progress.stop is set.
Outcome replay(const trace::Sequence& sequence, const Request& request, Progress& progress);

/// Returns what replay() throws where the trace does not store every query from the first measured one on,
/// each of which it answers: Error(usage) if a later cut would do, Error(input) if none would. Nothing: they
/// are stored.
std::optional<Error> missing_queries(const trace::Sequence& sequence);

/// Returns the bytes that replay() takes at once, to print before work begins and to refuse what does not
/// fit.
std::uint64_t estimate_bytes(const trace::Sequence& sequence, const Request& request);

}  // namespace kvsim::sim
