// Seconds by class of operations, of a decode step and of the prefill.
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

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  CostBars step = bars_of("step");
  step.figure = "cost-time";
  step.axis = "ms per decode step";
  step.unit = kPerMilli;
  step.title = "Time per token";
  step.reading =
      "A bar is the mean decode step, which gives every sequence of the batch one token, by class of "
      "operations.";
  CostBars prefill = bars_of("prefill");
  prefill.figure = "cost-prefill";
  prefill.axis = "s until the first token";
  prefill.title = "Time to the first token";
  prefill.reading =
      "A bar is the prefill of all sequences of the batch, compression included, by class of "
      "operations.";
  std::vector<Figure> figures = cost_bars(tables, choice, step);
  for (Figure& figure : cost_bars(tables, choice, prefill)) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace

FigureKind cost_time_figure() {
  return {"cost-time", "seconds by class of operations, of a decode step and of the prefill",
          "rows of kvsim cost", build, "cost"};
}

}  // namespace kvsim::analysis
