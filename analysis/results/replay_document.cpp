#include "analysis/results/replay_document.hpp"

#include "analysis/results/console/console_table.hpp"

namespace kvsim::analysis {

const char* const kOpenLoopNote =
    "Open loop: each recorded query is answered exactly as the compressed cache would answer it; what that "
    "answer\n"
    "would have changed later is not seen.";

Document replay_document(const std::vector<Row>& rows, const ReplayInputs& inputs) {
  Document out{.analysis = "replay",
               .loop = "open",
               .traces = inputs.traces,
               .lists = {{"policies", inputs.policies}, {"budgets", inputs.budgets}},
               .settings = {{"scope", scope_name(inputs.scope)},
                            {"seed", inputs.seed},
                            {"importance", inputs.importance},
                            {"peak", inputs.peak}},
               .records = records_of(rows),
               .caveat = kOpenLoopNote,
               .console = [&rows](std::ostream& text) { write_console_table(text, rows); }};
  if (!inputs.machine.empty()) {
    out.settings.emplace_back("machine", inputs.machine);
    out.settings.emplace_back("model", inputs.model);
  }
  return out;
}

}  // namespace kvsim::analysis
