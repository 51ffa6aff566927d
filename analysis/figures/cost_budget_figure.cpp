// What a smaller budget buys.
#include "analysis/figures/cost_view.hpp"

namespace kvsim::analysis {
namespace {

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  return cost_curves(
      tables, choice,
      {.figure = "cost-budget",
       .x = "budget_tokens",
       .axis = token_axis("budget per lane"),
       .x_unit = 1.0 / 1024,
       .panels = {{"largest batch", "largest_batch", "sequences"},
                  {"throughput", "tokens_per_second", "tokens/s"},
                  {"time per token", "tpot_seconds", "ms", kPerMilli}},
       .title = "What a smaller budget buys",
       .reading = "A curve is a policy; a dashed line has a size of its own. The largest batch "
                  "is the one whose peak still fits the machine."});
}

}  // namespace

FigureKind cost_budget_figure() {
  return {"cost-budget", "largest batch, throughput and time per token over the budget",
          "rows of kvsim cost estimate with several budgets (--sweep budget=...)", build, "cost"};
}

}  // namespace kvsim::analysis
