#pragma once
/// The decisions of a closed loop, in the form of a replay's.
#include <algorithm>
#include <utility>

#include "sim/loop/closed_loop.hpp"
#include "sim/replay/decisions.hpp"

namespace kvsim::sim {

/// Returns those of a loop with LoopRequest::decisions over `sequence`: a cell of a request in a mode is a
/// cell of the decisions, modes inside, as rows of answers stand. Step s feeds the token at position prompt -
/// 1 + s; step 0 is there where the last prompt token is asked again.
inline Decisions decisions_of(const trace::Sequence& sequence, const LoopRequest& request,
                              LoopOutcome outcome) {
  Decisions out;
  out.prompt = sequence.prompt_length();
  out.n_layers = sequence.model().n_layers;
  out.n_kv_heads = sequence.model().n_kv_heads;
  out.seed = request.seed;
  out.cut = outcome.cut;
  for (std::size_t i = 0; i < outcome.cells.size(); ++i)
    for (std::size_t mode = 0; mode < request.modes.size(); ++mode) {
      const Cell& asked = request.cells[i];
      LoopCell& cell = outcome.cells[i];
      Decisions::Cell& made = out.cells.emplace_back();
      made = {asked.composition.name, asked.composition.params, asked.budget.text, cell.skipped, {}};
      made.budget_tokens = cell.budget_tokens;
      made.mode = loop_mode_name(request.modes[mode]);
      if (!cell.skipped.empty()) continue;
      StreamOutcome& stream = cell.modes[mode];
      made.resident_intervals = std::move(stream.resident_intervals);
      const std::uint64_t fed = sequence.first_measured() + stream.resident.size();
      out.decode = std::max(out.decode, fed - out.prompt);
    }
  return out;
}

}  // namespace kvsim::sim
