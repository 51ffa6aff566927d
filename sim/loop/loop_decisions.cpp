#include "sim/loop/loop_decisions.hpp"

#include <algorithm>
#include <utility>

namespace kvsim::sim {

Decisions decisions_of(const trace::Sequence& sequence, const LoopRequest& request, LoopOutcome outcome) {
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
