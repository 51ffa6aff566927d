// Seconds by class of operations: a figure of a decode step, and one of the prefill.
#include "analysis/figures/cost_view.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::analysis {
namespace {

CostBars bars_of(const std::string& pass) {
  CostBars bars;
  CostBars::Bar& bar = bars.bars.emplace_back();
  for (std::size_t op = 0; op < cost::kOpClasses; ++op) {
    const char* name = cost::op_name(static_cast<cost::OpClass>(op));
    bars.parts.push_back(name);
    bar.parts.push_back({pass + '_' + name + "_seconds"});
  }
  bars.parts.push_back("waiting for the host");
  bar.parts.push_back({pass + "_host_seconds"});
  return bars;
}

std::vector<Figure> build_step(const FigureTables& tables, const FigureChoice& choice) {
  CostBars bars = bars_of("step");
  bars.figure = "cost-time";
  bars.axis = "ms per decode step";
  bars.unit = kPerMilli;
  bars.title = "Time per token";
  bars.reading =
      "A bar is the mean decode step, which gives every sequence of the batch one token, by class of "
      "operations.";
  return cost_bars(tables, choice, bars);
}

std::vector<Figure> build_prefill(const FigureTables& tables, const FigureChoice& choice) {
  CostBars bars = bars_of("prefill");
  bars.figure = "cost-prefill";
  bars.axis = "s until the first token";
  bars.title = "Time to the first token";
  bars.reading =
      "A bar is the prefill of all sequences of the batch, compression included, by class of operations.";
  return cost_bars(tables, choice, bars);
}

}  // namespace

FigureKind cost_time_figure() {
  return {"cost-time", "time per token by class of operations", "rows of kvsim cost estimate", build_step,
          "cost"};
}

FigureKind cost_prefill_figure() {
  return {"cost-prefill", "time to the first token by class of operations", "rows of kvsim cost estimate",
          build_prefill, "cost"};
}

}  // namespace kvsim::analysis
