#pragma once
/// Tidy result rows: one per trace x cell x scope. The keys, their order and their descriptions stand in
/// records_of() once; every export follows it. Formulas, ranges and denominators:
/// analysis/results/METRICS.md.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

/// What a row speaks of: the whole model, a layer, one lane (a layer's KV head), or the whole model at one
/// measured step.
enum class Scope { all, layer, head, step };
const char* scope_name(Scope scope);
/// Rows of scope step that a result may have: every step is kept, so long runs under many cells would be
/// more than anybody reads.
inline constexpr std::uint64_t kMostStepRows = 1'000'000;
/// Throws Error(usage) with the nearest names.
Scope parse_scope(std::string_view name);

struct Row {
  std::string trace, policy, params, budget;
  std::optional<double> budget_tokens;  ///< mean over the scope's lanes
  std::optional<double>
      allocated_tokens;  ///< mean of what the allocation gave; the prompt if it never evicts
  Scope scope = Scope::all;
  std::optional<std::uint32_t> layer, head;  ///< null above their scope
  std::string cut{};  ///< where the prompt ends for the policy: prompt, question or a position
  std::optional<double> evidence_loss{}, evidence_held{}, evidence_nowhere{}, peak_loss{};
  std::optional<double> r, r_oracle, isr;
  std::optional<double> attention_loss, attention_loss_oracle, output_error;
  std::optional<double> kept_tokens;
  std::optional<std::uint64_t> kept_bytes;
  std::optional<double> oracle_cosine;
  std::string workload;                    ///< kind of prompt, as the trace says; empty: not known
  std::uint64_t seed = 0;                  ///< of random policies
  std::optional<std::uint64_t> step;       ///< 0: the last prompt row, asked again; null but at scope step
  std::optional<double> held_tokens;       ///< positions held at the last step, mean over lanes
  std::optional<double> evicted_tokens{};  ///< positions before the last step's that are not, mean over lanes
  std::optional<double> output_cosine{}, projected_output_error{}, projected_output_cosine{};
  std::optional<double> peak_loss_weighted{}, peak_loss_low{}, peak_loss_by_head{}, peak_loss_output{};
  std::optional<double> kept_special{}, kept_context{}, kept_question{}, kept_template{};
  std::optional<std::uint64_t> instruction_before{};
  std::optional<policy::Holding> holding{};                 ///< none: skipped, or it keeps what it likes
  std::optional<double> r_bound{}, attention_loss_bound{};  ///< over all splits; scope all only
  // Keys of rows that were priced for a machine only:
  std::string machine{};  ///< empty: they were not
  std::optional<std::uint64_t> cache_bytes{}, peak_bytes{};
  std::optional<double> ttft_seconds{}, tpot_seconds{};
  // Not keys:
  std::string skipped;      ///< why metrics are null; shown as a note
  bool own_budget = false;  ///< the policy keeps what it likes, whatever the budget
  bool oracle = false;      ///< knows the future: a bound at its own split, not a policy

  /// Attention loss above that of the per-step oracle; shown to people, derived by machines.
  std::optional<double> excess_loss() const;
};

/// The same rows, every column described; those of a machine if some row names one.
Records records_of(const std::vector<Row>& rows);

/// Rows of every cell of one outcome at one scope, in the order of the request. A skipped cell has its rows
/// too, with null metrics. Scope step takes an outcome of a request with each_step; without measured steps
/// there are no rows. Throws Error(bug) when the outcome does not fit the request or its own shape.
std::vector<Row> make_rows(const std::string& trace_name, const sim::Request& request,
                           const sim::Outcome& outcome, Scope scope);

}  // namespace kvsim::analysis
