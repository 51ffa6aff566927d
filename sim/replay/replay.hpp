#pragma once
/// One pass over a recorded run serves every cell. Open loop: each recorded query is answered exactly as the
/// compressed cache would answer it; what that answer would have changed later is not seen.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/attention/importance_rule.hpp"
#include "sim/attention/peak_attention.hpp"
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
  unsigned threads = 0;                    ///< 0: as many as the machine has. Never changes a result.
  bool decisions = false;                  ///< record when each position is resident
  bool each_step = false;                  ///< record every measured step by itself, too
  ImportanceRule importance;               ///< the w behind R, R_avg and ISR
  PeakRule peak;                           ///< which rows count for peak loss
  bool bounds = false;                     ///< CellOutcome::attention_loss_bound, an oracle's work per lane
  const policy::Tables* tables = nullptr;  ///< where file parameters of policies lead; may be null
};

/// Attention that was paid to some keys, and the part of it that fell on keys no longer held.
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
};

/// Peak loss and its relatives (sim/attention/peak_attention.hpp), over all counted rows of a lane.
struct PeakOutcome {
  PaidAttention plain;                 ///< rows that reach PeakRule::threshold
  PaidAttention weighted;              ///< the same, every row times its peak
  PaidAttention low;                   ///< rows that reach PeakRule::low
  double dropped_times_error = 0;      ///< of `plain`: sum of dropped times the row's output error
  std::vector<PaidAttention> heads{};  ///< [group]: `plain` by query head
};

/// What one lane did under one cell. Sums, so that scopes above are sums too; rows.hpp of analysis divides.
struct LaneOutcome {
  std::uint64_t budget_tokens = 0;  ///< what the allocation gave the lane
  std::uint64_t kept_tokens = 0;    ///< positions held after the prompt
  std::uint64_t held_at_end = 0;    ///< positions held at the last step
  SegmentCounts kept_of{};          ///< of kept_tokens, by what kind of token they are
  // Importance (XKV's w: last 8 prompt rows, average pooling 7, positions before those rows, unless
  // Request::importance says otherwise), mean over the lane's query heads.
  std::uint64_t candidates = 0;       ///< M, positions that have a w
  std::uint64_t kept_candidates = 0;  ///< n of R(n): held positions that have a w
  double importance = 0;              ///< sum of w
  double importance_kept = 0;         ///< sum of w over held positions
  double importance_oracle = 0;       ///< sum of the kept_candidates largest w
  // Measured steps, true rows averaged over the lane's query heads.
  std::uint64_t steps = 0;
  double attention_loss = 0;         ///< sum over steps of 1 - retained mass
  double attention_loss_oracle = 0;  ///< the same for the per-step best set of the same size
  double oracle_cosine = 0;          ///< sum over steps of the cosine of what is held to that best set
  PaidAttention evidence{};          ///< attention on evidence tokens, over steps
  std::vector<std::uint8_t> holds_evidence{};  ///< [evidence tokens]: held at the last step, 0 or 1
  // Measured steps, every query head by itself.
  PeakOutcome peak{};
  double output_error = 0;   ///< sum over steps of the mean over query heads of |o' - o| / |o|, where the
                             ///< compressed cache computes o' instead of o
  double output_cosine = 0;  ///< the same of the cosine of o' to o
  std::vector<StepOutcome> each_step{};  ///< [steps]; empty without Request::each_step
  bool appends =
      false;  ///< generated tokens stay beside the budget: nobody manages the lane, or it is exempt
};

/// What the heads of one layer together gave the model under one cell: outputs after the output projection.
struct LayerOutcome {
  double projected_error = 0;   ///< sum over steps of |W (o' - o)| / |W o|
  double projected_cosine = 0;  ///< sum over steps of the cosine of W o' to W o
};

struct CellOutcome {
  std::string skipped;                 ///< why the cell was not run; empty: it was
  std::uint64_t budget_tokens = 0;     ///< mean per lane, as asked
  std::vector<LaneOutcome> lanes;      ///< [n_layers * n_kv_heads], layer-major; empty when skipped
  std::vector<LayerOutcome> layers{};  ///< [n_layers]; empty when skipped or without output weights
  std::vector<std::vector<ResidentInterval>>
      resident_intervals;  ///< per lane, by position then first; only with Request::decisions
  // Of all lanes together, where the oracles of LaneOutcome keep to the split that the policy has:
  std::optional<policy::Holding> holding{};  ///< none: it decides by itself how much it keeps
  /// Most R_avg that any choice of as many prompt tokens has, however they are spread over lanes.
  std::optional<double> r_bound{};
  /// Least attention loss, as mean over lanes and steps, of any schedule and any split of the total that the
  /// allocation gave out, for policies of the same holding; no lane has more than the prompt, or than the
  /// mean where that is more. Only with Request::bounds and decode steps.
  std::optional<double> attention_loss_bound{};
};

struct Outcome {
  std::uint64_t prompt = 0, decode = 0;  ///< tokens before and after the cut
  std::uint64_t first_step = 1;          ///< of the measured ones: 0 where the last prompt row is, too
  std::string cut{};                     ///< as trace::Cut::text()
  std::uint64_t instruction_before = 0;  ///< trace::Sequence::instruction_before()
  std::uint64_t evidence_tokens = 0;     ///< of the sequence; 0 if the trace does not know any
  SegmentCounts segment_tokens{};        ///< of the prompt, by kind
  std::uint32_t n_layers = 0, n_kv_heads = 0;
  std::string workload{};          ///< kind of prompt, as the trace says; empty: not known
  std::uint64_t token_bytes = 0;   ///< K and V of one token in one lane, as the trace stores them
  std::vector<CellOutcome> cells;  ///< as requested

  std::uint64_t measured_steps() const { return decode + 1 - first_step; }
};

/// A cell that cannot be run on this trace is skipped with the reason: its budget is below what its policy
/// always keeps, or the trace lacks queries that the policy needs. Throws Error(usage) when there is no cell
/// at all, Error(input) when the trace cannot be replayed or is damaged, Error(interrupted) when
/// progress.stop was set.
Outcome replay(const trace::Sequence& sequence, const Request& request, Progress& progress);

/// Bytes replay() will hold at once, for the line printed before work and for refusing what does not fit.
std::uint64_t estimate_bytes(const trace::Sequence& sequence, const Request& request);

}  // namespace kvsim::sim
