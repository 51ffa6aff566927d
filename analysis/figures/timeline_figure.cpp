// What a lane holds: a line per token, from when it is kept to when it leaves.
#include "analysis/figures/figure_kind.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 3;

std::vector<const sim::Decisions::Cell*> cells_of(const sim::Decisions& decisions,
                                                  const FigureChoice& choice) {
  std::vector<std::string> policies, budgets;
  std::vector<const sim::Decisions::Cell*> out;
  for (const sim::Decisions::Cell& cell : decisions.cells) {
    policies.push_back(cell.policy);
    budgets.push_back(cell.budget);
    const bool budget = choice.budget.empty() || choice.budget == cell.budget;
    if (choice.wants(cell.policy) && budget && cell.skipped.empty()) out.push_back(&cell);
  }
  for (const std::string& policy : choice.policies) known_name(policy, policies, "--policy");
  if (!choice.budget.empty()) known_name(choice.budget, budgets, "--budget");
  return out;
}

/// Neighbours that come and go together are one bar.
Timeline timeline_of(const std::vector<sim::ResidentInterval>& stays, std::uint64_t prompt) {
  Timeline timeline;
  timeline.x = {.label = "measured step", .whole = true};
  timeline.y.label = "position";
  timeline.colours = {"prompt", "generated"};
  std::int64_t next = -1;
  for (const sim::ResidentInterval& stay : stays) {
    const double begin = stay.first, end = stay.last;
    const int colour = static_cast<std::uint64_t>(stay.position) < prompt ? 0 : 1;
    if (!timeline.bars.empty() && stay.position == next) {
      Timeline::Bar& last = timeline.bars.back();
      if (last.begin == begin && last.end == end && last.colour == colour) {
        last.y += 0.5;
        last.height += 1;
        ++next;
        continue;
      }
    }
    timeline.bars.push_back({static_cast<double>(stay.position), begin, end, colour, 1});
    next = std::int64_t{stay.position} + 1;
  }
  return timeline;
}

std::size_t lane_of(const sim::Decisions& decisions, const FigureChoice& choice) {
  const std::uint32_t layer = choice.layer.value_or(0), head = choice.head.value_or(0);
  if (layer >= decisions.n_layers)
    usage_error("the model has layers 0 to " + std::to_string(decisions.n_layers - 1), "--layer");
  if (head >= decisions.n_kv_heads)
    usage_error("a layer has KV heads 0 to " + std::to_string(decisions.n_kv_heads - 1), "--head");
  return std::size_t{layer} * decisions.n_kv_heads + head;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (!tables.decisions || tables.decisions->n_layers == 0 || tables.decisions->n_kv_heads == 0) return {};
  const sim::Decisions& decisions = *tables.decisions;
  const std::vector<const sim::Decisions::Cell*> cells = cells_of(decisions, choice);
  const std::size_t lane = lane_of(decisions, choice);
  Figure figure;
  for (const sim::Decisions::Cell* cell : cells) {
    if (figure.panels.size() == kMostPanels) break;
    Timeline timeline = timeline_of(cell->resident_intervals[lane], decisions.prompt);
    timeline.x.low = 0.0;
    timeline.x.high = static_cast<double>(decisions.decode);
    timeline.y.low = -0.5;
    timeline.y.high = static_cast<double>(decisions.prompt + decisions.decode) - 0.5;
    const std::string mode = cell->mode.empty() ? "" : ", " + cell->mode;
    figure.panels.push_back({cell->policy + ", " + cell->budget + mode, std::move(timeline)});
  }
  if (figure.panels.empty()) return {};
  FigureChoice made = choice;
  made.layer = choice.layer.value_or(0);
  made.head = choice.head.value_or(0);
  figure.name = "timeline";
  figure.title = "What layer " + std::to_string(*made.layer) + ", KV head " + std::to_string(*made.head) +
                 " holds, token by token";
  figure.reading =
      "A line is a token, from the step it is first held to the step it is dropped at; step 0 is right after "
      "the prompt, and blank is what was not kept from the prompt or is dropped already.";
  if (cells.size() > kMostPanels)
    figure.remark = "The first " + std::to_string(kMostPanels) + " of " + std::to_string(cells.size()) +
                    " recorded cells; others by --policy and --budget.";
  figure.command = plot_command("timeline", tables, made);
  figure.data = figure_data(figure, {.panel = "cell", .series = "token", .y = "position"});
  return {std::move(figure)};
}

}  // namespace

FigureKind timeline_figure() {
  return {"timeline", "what a lane holds at each step, token by token",
          "decisions (kvsim replay --decisions FILE)", build};
}

}  // namespace kvsim::analysis
