#pragma once
/// The model answers through the compressed cache: what follows the cut attends what the policy keeps, layer
/// by layer, so that every later query, key, value and token feels what was evicted. The same policy objects,
/// budgets and allocations as in replay; both rank the prompt through the same code.
///
/// The prompt is processed once. Its keys and values are shared by all cells; what follows runs for all cells
/// in step, one batch through the linear layers. The full cache is one of the batch and the reference: a
/// cell's numbers depend neither on the other cells nor on the number of threads, and `full` equals the
/// reference in every bit.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/loop/token_measures.hpp"
#include "sim/replay/replay.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::sim {

/// What a cell is fed after the prompt.
enum class LoopMode {
  teacher,  ///< the reference's tokens: the given answer, or what the full cache generates
  greedy,   ///< what the cell itself finds most probable
};
const char* loop_mode_name(LoopMode mode);

struct LoopRequest {
  std::vector<Cell> cells;
  std::vector<LoopMode> modes{LoopMode::teacher, LoopMode::greedy};
  std::uint64_t max_new_tokens = 8;
  /// What the reference is forced on in teacher mode; empty: what the full cache generates.
  std::vector<std::int32_t> answer;
  std::vector<std::int32_t> eos;  ///< generation ends after one of these
  Elem elem = Elem::f32;          ///< of the cache, as the prompt was run with
  std::uint64_t seed = 0;
  unsigned threads = 0;    ///< 0: as many as the machine has. Never changes a result.
  bool decisions = false;  ///< record when each position is resident
  const policy::Tables* tables = nullptr;
  /// trace::TokenFlag bits of a generated token; null: none is known.
  std::function<std::uint32_t(std::int32_t id)> token_flags;
};

/// One cell in one mode, or the reference.
struct StreamOutcome {
  std::vector<std::int32_t> tokens;     ///< that follow the recorded prompt
  std::vector<TokenMeasures> measures;  ///< per token; teacher mode, and not of the reference
  std::vector<double> margins;          ///< per token; of the reference alone
  std::vector<std::uint64_t> resident;  ///< per fed token: positions held in all lanes together
  /// Per lane, layer-major, by position then first step; only with LoopRequest::decisions, and not of the
  /// reference.
  std::vector<std::vector<ResidentInterval>> resident_intervals{};
  double held_tokens = 0;                                 ///< at the end, mean over lanes
  std::optional<double> evidence_held, evidence_nowhere;  ///< as in replay, at the end
};

struct LoopCell {
  std::string skipped;               ///< why the cell was not run; empty: it was
  std::uint64_t budget_tokens = 0;   ///< mean per lane, as asked
  double kept_tokens = 0;            ///< after the cut, mean over lanes
  std::vector<StreamOutcome> modes;  ///< as requested; empty when skipped
};

struct LoopOutcome {
  std::uint64_t prompt = 0;  ///< tokens before the cut
  std::uint64_t fed = 0;     ///< recorded prompt tokens after it, or 1: the last one, asked again
  std::string cut;
  std::vector<StreamOutcome> references;  ///< one per mode: the full cache
  std::vector<LoopCell> cells;            ///< as requested
};

/// `sequence`: the prompt, run already, at a cut, without decode steps; its queries are all there. `tokens`:
/// its ids. A policy that needs what a running model does not have is skipped with the reason: oracles, and
/// those that read rows of the full run (feedback=raw). Throws Error(usage) and Error(input) as replay()
/// does, and when logits are not finite.
LoopOutcome closed_loop(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                        const model::ModelConfig& config, const model::Weights& weights,
                        const LoopRequest& request, Progress& progress);

/// Bytes that closed_loop() holds at once besides the prompt's trace and what policies hold.
std::uint64_t estimate_loop_bytes(const trace::Sequence& sequence, const model::ModelConfig& config,
                                  const LoopRequest& request);

}  // namespace kvsim::sim
