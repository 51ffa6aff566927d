// Parts of a replay: where a better choice would have helped, head by head; what steps retain and read; how
// layers share the budget; and what a lane holds for how long.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// Tokens by layer, means over traces and seeds.
struct Split {
  std::vector<std::string> policies{};  ///< that share it
  std::vector<Point> points{};

  std::string name() const {
    constexpr std::size_t kMostNames = 3;
    if (policies.size() <= kMostNames) return joined(policies);
    const bool even =
        std::ranges::all_of(points, [&](const Point& point) { return point.y == points.front().y; });
    return even ? "even: " + std::to_string(policies.size()) + " policies"
                : policies.front() + " and " + std::to_string(policies.size() - 1) + " others";
  }
};

bool equal(const std::vector<Point>& a, const std::vector<Point>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Point& one, const Point& other) {
    return one.x == other.x && one.y == other.y;
  });
}

/// Policies of the same split together, the most common first.
std::vector<Split> splits_of(const ResultsView& view, const std::vector<std::size_t>& rows) {
  std::vector<Split> splits;
  for (const ResultsView::Policy& policy : view.policies()) {
    std::map<double, RunningMean> sums;
    for (const std::size_t row : rows)
      if (const auto layer = view.layer.number(row), tokens = view.budget_tokens.number(row);
          layer && tokens && &view.policy_of(row) == &policy && policy.role == "policy")
        sums[*layer].add(*tokens);
    if (sums.empty()) continue;
    Split split{{policy.label}};
    for (const auto& [layer, sum] : sums) split.points.push_back({layer, *sum.value(), {}, {}});
    const auto same =
        std::ranges::find_if(splits, [&](const Split& other) { return equal(other.points, split.points); });
    if (same == splits.end())
      splits.push_back(std::move(split));
    else
      same->policies.push_back(policy.label);
  }
  std::ranges::stable_sort(
      splits, [](const Split& a, const Split& b) { return a.policies.size() > b.policies.size(); });
  return splits;
}

/// Budget per layer: how the policies split what they may keep.
std::vector<Figure> layers(const FigureTables& tables, FigureChoice& choice) {
  constexpr std::size_t kMostCurves = 8;
  const ResultsView view(tables.results);
  choice.metric.clear();
  std::vector<std::size_t> rows = view.rows_at_one_budget("layer", choice);
  if (rows.empty()) return {};
  for (const std::string& label : choice.policies) view.policy(label);
  std::erase_if(rows, [&](std::size_t row) { return !choice.wants(view.policy_of(row).label); });
  const std::vector<Split> splits = splits_of(view, rows);
  if (splits.empty()) return {};
  Chart chart{.x = {.label = "layer", .whole = true}, .y = {.label = "budget (tokens per lane)", .low = 0.0}};
  for (const Split& split : splits) {
    const bool shown = chart.series.size() < kMostCurves;
    chart.series.push_back({.label = joined(split.policies, " "),
                            .weight = shown ? Weight::plain : Weight::faint,
                            .points = split.points,
                            .group = shown ? split.name() : "others"});
  }
  Figure figure{.title = "Budget per layer, " + at_budget(choice.budget) + ", " +
                         traces_text(view.traces(rows), choice.workload),
                .reading =
                    "How many tokens a lane of each layer may hold; a flat line is the same for every layer. "
                    "Policies that split alike share a curve."};
  if (splits.front().points.size() == 1) figure.remark = "One layer, so points and no lines.";
  figure.panels.push_back({"", std::move(chart)});
  return {std::move(figure)};
}

/// Attention loss above the oracle's of a policy, mean over traces and seeds, [layer][head]; nothing where no
/// row has both.
std::optional<HeatMap> excess_of(const ResultsView& view, const std::vector<std::size_t>& rows,
                                 const std::string& policy) {
  const TableColumn loss = view.metric("attention_loss"), oracle = view.metric("attention_loss_oracle");
  std::map<std::pair<std::size_t, std::size_t>, RunningMean> means;
  std::size_t width = 0, height = 0;
  for (const std::size_t row : rows) {
    const auto layer = view.layer.number(row), head = view.head.number(row);
    if (!layer || !head || view.policy_of(row).label != policy) continue;
    const auto y = static_cast<std::size_t>(*layer), x = static_cast<std::size_t>(*head);
    height = std::max(height, y + 1);
    width = std::max(width, x + 1);
    if (const auto value = loss.number(row), best = oracle.number(row); value && best)
      means[{y, x}].add(*value - *best);
  }
  if (means.empty()) return {};
  HeatMap map{.unit = "excess attention loss", .numbers = true, .percent = true};
  map.x.label = "KV head";
  map.y.label = "layer";
  map.rows.assign(height, std::vector<std::optional<double>>(width));
  for (const auto& [at, mean] : means) map.rows[at.first][at.second] = mean.value();
  return map;
}

/// Where a policy loses what it need not, per layer and head.
std::vector<Figure> excess(const FigureTables& tables, FigureChoice& choice) {
  constexpr std::size_t kMostPanels = 6;
  const ResultsView view(tables.results);
  choice.metric.clear();
  const std::vector<std::size_t> rows = view.rows_at_one_budget("head", choice);
  if (rows.empty()) return {};
  const Metric& leading = leading_metric(tables);
  const NamedPolicies named(view, leading, choice);
  Figure figure{.title = "Attention loss above the per-step oracle's at its own split, per layer and head, " +
                         at_budget(choice.budget),
                .reading =
                    "Bright cells are heads where a better choice of tokens would have helped; dark ones "
                    "lose little that could have been kept. All panels share their colours."};
  for (const std::string& label : named.labels)
    if (figure.panels.size() < kMostPanels)
      if (auto map = excess_of(view, rows, label)) figure.panels.push_back({label, std::move(*map)});
  if (figure.panels.empty()) return {};
  if (choice.policies.empty() && named.others > 0)
    figure.remark = "Shown: " + std::to_string(figure.panels.size()) + " of the policies, by " +
                    std::string(leading.label) + " over all budgets; others by --policy.";
  return {std::move(figure)};
}

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
void add_bars(Timeline& timeline, const std::vector<sim::ResidentInterval>& stays, std::uint64_t prompt) {
  std::int64_t next = -1;
  for (const sim::ResidentInterval& stay : stays) {
    const double begin = stay.first, end = stay.last;
    const int colour = static_cast<std::uint64_t>(stay.position) < prompt ? 0 : 1;
    Timeline::Bar* last = timeline.bars.empty() || stay.position != next ? nullptr : &timeline.bars.back();
    if (last != nullptr && last->begin == begin && last->end == end && last->colour == colour) {
      last->y += 0.5;
      last->height += 1;
    } else {
      timeline.bars.push_back({static_cast<double>(stay.position), begin, end, colour, 1});
    }
    next = std::int64_t{stay.position} + 1;
  }
}

/// What a lane holds: a line per token, from when it is kept to when it leaves.
std::vector<Figure> timeline(const FigureTables& tables, FigureChoice& choice) {
  constexpr std::size_t kMostPanels = 3;
  if (!tables.decisions || tables.decisions->n_layers == 0 || tables.decisions->n_kv_heads == 0) return {};
  const sim::Decisions& decisions = *tables.decisions;
  const std::vector<const sim::Decisions::Cell*> cells = cells_of(decisions, choice);
  const std::uint32_t layer = choice.layer.value_or(0), head = choice.head.value_or(0);
  if (layer >= decisions.n_layers)
    usage_error("the model has layers 0 to " + std::to_string(decisions.n_layers - 1), "--layer");
  if (head >= decisions.n_kv_heads)
    usage_error("a layer has KV heads 0 to " + std::to_string(decisions.n_kv_heads - 1), "--head");
  if (cells.empty()) return {};
  choice.layer = layer;
  choice.head = head;
  Figure figure{
      .title = "What layer " + std::to_string(layer) + ", KV head " + std::to_string(head) +
               " holds, token by token",
      .reading =
          "A line is a token, from the step it is first held to the step it is dropped at; step 0 is right "
          "after the prompt, and blank is what was not kept from the prompt or is dropped already."};
  for (const sim::Decisions::Cell* cell : cells) {
    if (figure.panels.size() == kMostPanels) break;
    const auto steps = static_cast<double>(decisions.decode), prompt = static_cast<double>(decisions.prompt);
    Timeline lane{.x = {.label = "measured step", .low = 0.0, .high = steps, .whole = true},
                  .y = {.label = "position", .low = -0.5, .high = prompt + steps - 0.5},
                  .colours = {"prompt", "generated"}};
    add_bars(lane, cell->resident_intervals[std::size_t{layer} * decisions.n_kv_heads + head],
             decisions.prompt);
    const std::string mode = cell->mode.empty() ? "" : ", " + cell->mode;
    figure.panels.push_back({cell->policy + ", " + cell->budget + mode, std::move(lane)});
  }
  if (cells.size() > kMostPanels)
    figure.remark = "The first " + std::to_string(kMostPanels) + " of " + std::to_string(cells.size()) +
                    " recorded cells; others by --policy and --budget.";
  return {std::move(figure)};
}

/// Means over traces and seeds, by step.
using StepMeans = std::map<double, RunningMean>;

std::vector<Point> points_of(const StepMeans& steps) {
  std::vector<Point> out;
  for (const auto& [step, mean] : steps) out.push_back({step, *mean.value(), {}, {}});
  return out;
}

/// The rows of the steps that every trace has: a mean over fewer traces would be another one.
struct CommonSteps {
  std::vector<std::size_t> rows{};
  std::size_t traces = 0;
  bool left_out = false;  ///< whether some trace has further steps

  /// `all`: of scope step.
  CommonSteps(const ResultsView& view, const std::vector<std::size_t>& all) {
    std::map<std::string, std::set<double>> steps;
    for (const std::size_t row : all)
      if (const auto step = view.step.number(row)) steps[view.trace.text(row)].insert(*step);
    traces = steps.size();
    for (const std::size_t row : all) {
      const auto step = view.step.number(row);
      const bool common = step && std::ranges::all_of(steps, [&](const auto& of_trace) {
                            return of_trace.second.contains(*step);
                          });
      if (common)
        rows.push_back(row);
      else
        left_out = left_out || step.has_value();
    }
  }
};

/// Attention loss is shown as what is retained, unless it is asked for by its name; bytes as KiB.
struct Shown {
  const Metric* metric = nullptr;
  bool retained = false;

  bool bytes() const { return std::string_view(metric->unit).starts_with("bytes"); }
  double value(double of) const { return retained ? 1 - of : bytes() ? of / 1024 : of; }
  std::string key() const {
    const std::string key = metric->key;
    return retained ? "retained_mass" : bytes() ? key.substr(0, key.rfind('_')) + "_kib" : key;
  }
  Axis axis() const {
    if (retained) return {.label = "retained mass (1 - attention loss)", .percent = true};
    Axis axis = metric_axis(*metric);
    if (bytes()) axis.label = std::string(metric->label) + " (KiB)";
    return axis;
  }
};

/// As asked; else what is retained, or total variation where numbers are stored otherwise.
Shown shown_of(const ResultsView& view, const std::vector<std::size_t>& rows, const FigureChoice& choice) {
  if (!choice.metric.empty()) {
    std::vector<std::string> known;
    for (const Metric& each : metrics())
      if (each.measure_step != nullptr) known.emplace_back(each.key);
    return {&metric(known_name(choice.metric, known, "--metric")), false};
  }
  const Metric& loss = metric("attention_loss");
  const Metric& shown = more_defined(view, rows, loss, metric("total_variation"));
  return {&shown, &shown == &loss};
}

/// A number over measured steps: how much of each step's attention falls on what is still held and read, or
/// another metric of single steps.
std::vector<Figure> over_steps(const FigureTables& tables, FigureChoice& choice) {
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("step", choice);
  if (all.empty()) return {};
  const Shown shown = shown_of(view, all, choice);
  choice.metric = shown.retained ? "" : shown.metric->key;
  const TableColumn value = view.metric(shown.metric->key), oracle = view.metric("attention_loss_oracle");
  const std::vector<std::size_t> at_budget_rows = view.rows_at_one_budget("step", choice);
  const NamedPolicies named(view, leading_metric(tables), choice);
  const CommonSteps steps(view, view.rows_with(at_budget_rows, value));
  std::map<std::string, StepMeans> of_policies, of_oracles;
  StepMeans of_full;
  for (const std::size_t row : steps.rows) {
    const auto mine = value.number(row), best = oracle.number(row);
    const ResultsView::Policy& policy = view.policy_of(row);
    const double step = *view.step.number(row);
    if (!mine || policy.role == "oracle") continue;
    if (policy.compared())
      of_policies[policy.label][step].add(shown.value(*mine));
    else if (!shown.retained)
      of_full[step].add(shown.value(*mine));
    // The oracle is of the budget, which what stores everything does not keep to.
    if (shown.retained && best && policy.role == "policy") of_oracles[policy.label][step].add(1 - *best);
  }
  if (of_policies.empty()) return {};
  Chart chart{.x = {.label = "measured step", .whole = true}, .y = shown.axis()};
  std::map<std::string, Series> curves;
  for (const auto& [label, means] : of_policies) curves[label] = {.label = label, .points = points_of(means)};
  add_curves(chart, curves, named.labels);
  if (!of_full.empty())
    chart.series.push_back({.label = "full", .weight = Weight::bound, .points = points_of(of_full)});
  // Policies that split the budget differently have different oracles: the best at each step.
  std::map<double, double> best_oracle;
  for (const auto& [label, means] : of_oracles)
    for (const Point& point : points_of(means))
      best_oracle[point.x] = std::max(best_oracle[point.x], point.y);
  if (!of_oracles.empty())
    chart.series.push_back({.label = "per-step oracle (own splits)", .weight = Weight::bound});
  for (const auto& [x, y] : best_oracle) chart.series.back().points.push_back({x, y, {}, {}});

  Figure figure{
      .title = (shown.retained ? "Attention retained" : capitalised(shown.metric->label)) +
               " over measured steps, " + at_budget(choice.budget) + ", " +
               traces_text(steps.traces, choice.workload),
      .reading = shown.retained
                     ? "The share of each step's attention that falls on tokens still held, and read. Replay "
                       "is open loop: a real run would have left the recorded one where this is low, and a "
                       "falling curve says from when on. Step 0 is the last prompt token, asked once more."
                     : "One measured step after the other; step 0 is the last prompt token, asked once more.",
      .remark = named.remark()};
  if (steps.left_out) add_sentence(figure.remark, "Steps that only some traces have are left out.");
  figure.panels.push_back({"", std::move(chart)});
  figure.data = figure_data(figure, {.series = "policy", .x = "step", .y = shown.key()});
  return {std::move(figure)};
}

/// KiB that a step reads: of the index, of what the step before has read, too, and of the rest.
using Traffic = std::array<StepMeans, 3>;

/// Columns of so many steps, parts on each other from the axis up; each the mean of its steps.
Timeline columns_of(const Traffic& traffic, std::size_t steps) {
  Timeline out{.x = {.label = "measured step", .whole = true},
               .y = {.label = "KiB read", .low = 0.0},
               .colours = {"index", "hits: read at the step before, too", "misses"}};
  for (auto at = traffic[0].begin(); at != traffic[0].end();) {
    const double first = at->first;
    std::array<RunningMean, 3> means;
    double last = first;
    for (std::size_t n = 0; n < steps && at != traffic[0].end(); ++n, ++at) {
      last = at->first;
      for (std::size_t part = 0; part < means.size(); ++part)
        means[part].add(*traffic[part].at(last).value());
    }
    double base = 0;
    for (std::size_t part = 0; part < means.size(); ++part) {
      const double size = *means[part].value();
      if (size > 0)
        out.bars.push_back({base + size / 2, first - 0.4, last + 0.4, static_cast<int>(part), size});
      base += size;
    }
    out.y.high = std::max(out.y.high.value_or(0), base);
  }
  return out;
}

/// What a step reads, by where it is: the index and what the step before has read on the device, the rest
/// where the cache lives.
std::vector<Figure> traffic(const FigureTables& tables, FigureChoice& choice) {
  constexpr std::size_t kMostPanels = 4;
  constexpr double kMostBars = 100;
  const ResultsView view(tables.results);
  choice.metric.clear();
  const std::vector<std::size_t> rows = view.rows_at_one_budget("step", choice);
  if (rows.empty()) return {};
  const TableColumn read = view.metric("read_bytes"), index = view.metric("index_read_bytes"),
                    hit_rate = view.metric("hit_rate");
  const CommonSteps steps(view, view.rows_with(rows, read));
  std::map<std::string, Traffic> all;
  for (const std::size_t row : steps.rows) {
    const auto bytes = read.number(row), of_index = index.number(row);
    const ResultsView::Policy& policy = view.policy_of(row);
    if (!bytes || !of_index || !policy.compared()) continue;
    const double tokens = *bytes - *of_index;
    const double hits = tokens * hit_rate.number(row).value_or(0);  // the first step finds nothing
    const double step = *view.step.number(row);
    Traffic& means = all[policy.label];
    means[0][step].add(*of_index / 1024);
    means[1][step].add(hits / 1024);
    means[2][step].add((tokens - hits) / 1024);
  }
  Figure figure{.title = "What a step reads of what is stored, " + at_budget(choice.budget) + ", " +
                         traces_text(steps.traces, choice.workload),
                .reading =
                    "A column is a step: what choosing reads of the index, then the tokens that are read. A "
                    "device that keeps the index and the tokens of the last step reads the misses alone from "
                    "where the cache lives.",
                .columns = 2};
  figure.data.columns = {{"policy", "", "the policy"},
                         {"step", "index", "measured step"},
                         {"index_kib", "KiB", "read of the index"},
                         {"hit_kib", "KiB", "read at the step before, too"},
                         {"miss_kib", "KiB", "not read at the step before"}};
  std::size_t together = 0;  // steps in a column, as the first panel has room for them
  double most = 0;
  for (const std::string& label : NamedPolicies(view, leading_metric(tables), choice).labels) {
    const auto found = all.find(label);
    if (found == all.end() || figure.panels.size() == kMostPanels) continue;
    const Traffic& means = found->second;
    if (together == 0)
      together = static_cast<std::size_t>(std::ceil(static_cast<double>(means[0].size()) / kMostBars));
    Timeline timeline = columns_of(means, together);
    most = std::max(most, *timeline.y.high);
    figure.panels.push_back({label, std::move(timeline)});
    for (const auto& [step, mean] : means[0])
      figure.data.rows.push_back(
          {label, step, *mean.value(), *means[1].at(step).value(), *means[2].at(step).value()});
  }
  if (figure.panels.empty()) return {};
  for (Panel& panel : figure.panels) std::get<Timeline>(panel.content).y.high = most;
  if (together > 1) figure.remark = "A column is the mean of " + std::to_string(together) + " steps.";
  if (all.size() > figure.panels.size())
    add_sentence(figure.remark, "Shown: " + std::to_string(figure.panels.size()) + " of the " +
                                    std::to_string(all.size()) +
                                    " policies that read a part; others by --policy.");
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> part_figures() {
  return {
      {.name = "excess",
       .summary = "attention loss above the oracle's per layer and head, a heat map per policy",
       .needs = "results of scope head (kvsim replay --per head)",
       .draw = excess,
       .data = {.panel = "policy", .x = "head", .y = "layer", .value = "excess_attention_loss"}},
      {.name = "steps",
       .summary = "attention retained over measured steps, or --metric read_bytes, hit_rate, ..., by policy",
       .needs = "results of scope step (kvsim replay --per step)",
       .draw = over_steps},
      {.name = "traffic",
       .summary = "bytes that each step reads of index, hits and misses, a panel per policy",
       .needs = "results of scope step (kvsim replay --per step) in which a policy reads a part of what it "
                "stores, such as full+quest",
       .draw = traffic},
      {.name = "layers",
       .summary = "budget per layer, a curve per way to split it",
       .needs = "results of scope layer (kvsim replay --per layer) of a policy that has a budget to split",
       .draw = layers,
       .data = {.series = "policies", .x = "layer", .y = "budget_tokens"}},
      {.name = "timeline",
       .summary = "what a lane holds at each step, token by token",
       .needs = "decisions (kvsim replay --decisions FILE)",
       .draw = timeline,
       .data = {.panel = "cell", .series = "token", .y = "position"}}};
}

}  // namespace kvsim::analysis
