#include "analysis/results/console/console_table.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <tuple>

#include "analysis/results/cell_columns.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/results/replay_document.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

// Rows of a replay as the table for people has them: steps in one line, the best marked, means over traces.
// The formats for machines have rows of single traces only: whoever groups those by trace, or averages them,
// would count a row of means as one more trace.

/// Rows of scope step folded into one per cell.
struct StepLosses {
  std::vector<Row> rows{};                                 ///< attention loss is its mean over steps
  std::vector<std::map<std::uint64_t, double>> by_step{};  ///< per row; empty: skipped
};

StepLosses step_losses(const std::vector<Row>& rows) {
  StepLosses out;
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (before == nullptr || *row.step <= *before->step) {
      out.rows.push_back(row);
      out.by_step.emplace_back();
    }
    before = &row;
    if (const std::optional<double> loss = row["attention_loss"])
      out.by_step.back().emplace(*row.step, *loss);
  }
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    if (out.by_step[i].empty()) continue;
    double sum = 0;
    for (const auto& [step, loss] : out.by_step[i]) sum += loss;
    out.rows[i].set("attention_loss", sum / static_cast<double>(out.by_step[i].size()));
  }
  return out;
}

/// All of a few steps; of many 0, 1, 2, 4, ... and the last, because loss grows fastest at first.
std::vector<std::uint64_t> shown_steps(const StepLosses& losses) {
  constexpr std::size_t kMostSteps = 8;  ///< measured steps that all have their column
  std::set<std::uint64_t> steps;
  for (const auto& by_step : losses.by_step)
    for (const auto& [step, loss] : by_step) steps.insert(step);
  if (steps.size() > kMostSteps) {
    const std::uint64_t last = *steps.rbegin();
    std::erase_if(steps, [&](std::uint64_t step) { return step != last && (step & (step - 1)) != 0; });
  }
  return {steps.begin(), steps.end()};
}

/// What is compared with what.
using Contest = std::tuple<std::string, std::string, std::string, std::optional<std::uint32_t>,
                           std::optional<std::uint32_t>>;
Contest contest_of(const Row& row) {
  return {row.trace, row.cut, row.budget, row.layer, row.head};
}

/// Lower is better; undefined for rows out of competition.
std::optional<double> badness(const Row& row, const Metric& metric) {
  if (row.own_budget || row.oracle) return {};
  return row[metric.key]
             ? std::optional(metric.better == Better::higher ? -*row[metric.key] : *row[metric.key])
             : std::nullopt;
}

/// What they compete by: the first metric that one of them has. Cells without it, such as those that store
/// other numbers, are out of competition.
const Metric& metric_of(const std::vector<Row>& rows) {
  for (const Metric* metric : leading_metrics())
    if (std::ranges::any_of(rows, [&](const Row& row) { return row[metric->key].has_value(); }))
      return *metric;
  return *leading_metrics().back();
}

/// Rows of the same trace, cut, budget, layer and head compete by the first of leading_metrics() that they
/// have; those without a budget, oracles and skipped cells do not. True: loses least of its contest, ties
/// included; false everywhere where all are alike.
std::vector<bool> winners(const std::vector<Row>& rows) {
  struct Range {
    double least, most;
  };
  std::map<Contest, Range> ranges;
  const Metric& metric = metric_of(rows);
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row, metric);
    if (!bad) continue;
    const auto [entry, fresh] = ranges.try_emplace(contest_of(row), Range{*bad, *bad});
    entry->second.least = std::min(entry->second.least, *bad);
    entry->second.most = std::max(entry->second.most, *bad);
  }
  std::vector<bool> won;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row, metric);
    const auto range = ranges.find(contest_of(row));
    won.push_back(bad && *bad == range->second.least && range->second.least < range->second.most);
  }
  return won;
}

/// What rows of different traces have in common.
using Cell = std::tuple<std::string, std::string, std::string, std::optional<std::uint32_t>,
                        std::optional<std::uint32_t>>;
Cell cell_of(const Row& row) {
  return {row.budget, row.params, row.cut, row.layer, row.head};
}

/// Places of the rows of each cell, cells in order of appearance; of cuts that several traces have.
std::vector<std::vector<std::size_t>> cells_to_average(const std::vector<Row>& rows) {
  std::map<std::string, std::set<std::string>> traces;  // by cut
  for (const Row& row : rows) traces[row.cut].insert(row.trace);
  std::vector<std::vector<std::size_t>> out;
  std::map<Cell, std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (traces[rows[i].cut].size() < 2) continue;
    const auto [place, fresh] = places.try_emplace(cell_of(rows[i]), out.size());
    if (fresh) out.emplace_back();
    out[place->second].push_back(i);
  }
  return out;
}

/// Nothing as soon as one row has nothing.
template <class Get>
std::optional<double> mean_of(const std::vector<Row>& rows, const std::vector<std::size_t>& places, Get get) {
  double sum = 0;
  for (const std::size_t i : places) {
    const std::optional<double> value = get(rows[i]);
    if (!value) return {};
    sum += *value;
  }
  return sum / static_cast<double>(places.size());
}

Row mean_row(const std::vector<Row>& rows, const std::vector<std::size_t>& places) {
  Row out = rows[places.front()];
  out.trace = "mean of " + std::to_string(places.size());
  out.skipped.clear();  // told of the row itself
  out.budget_tokens = mean_of(rows, places, [](const Row& row) { return row.budget_tokens; });
  const std::vector<Metric>& all = all_metrics();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].derive == nullptr)
      out.set(i, value_of(mean_of(rows, places, [i](const Row& row) { return number(row.metric(i)); })));
  for (const std::size_t i : places)
    if (rows[i].holding != out.holding) out.holding.reset();
  return out;
}

std::map<std::uint64_t, double> mean_by_step(const StepLosses& losses,
                                             const std::vector<std::size_t>& places) {
  std::map<std::uint64_t, double> out;
  for (const auto& [step, first] : losses.by_step[places.front()]) {
    double sum = 0;
    bool everywhere = true;
    for (const std::size_t i : places) {
      const auto found = losses.by_step[i].find(step);
      everywhere = everywhere && found != losses.by_step[i].end();
      if (everywhere) sum += found->second;
    }
    if (everywhere) out.emplace(step, sum / static_cast<double>(places.size()));
  }
  return out;
}

/// The rows and, where a cut was replayed on several traces, behind them one row per policy, budget, cut,
/// layer and head whose trace is "mean of N". Every trace weighs alike. A metric has a mean if it is defined
/// on every trace: a mean over the traces that remain would not be comparable with that of another policy.
std::vector<Row> with_means(std::vector<Row> rows) {
  std::vector<Row> means;
  for (const std::vector<std::size_t>& places : cells_to_average(rows))
    means.push_back(mean_row(rows, places));
  rows.insert(rows.end(), means.begin(), means.end());
  return rows;
}

/// The same of rows of scope step, which have a mean at the steps that every trace has.
StepLosses with_means(StepLosses losses) {
  const std::vector<std::vector<std::size_t>> cells = cells_to_average(losses.rows);
  for (const std::vector<std::size_t>& places : cells) losses.by_step.push_back(mean_by_step(losses, places));
  losses.rows = with_means(std::move(losses.rows));
  return losses;
}

/// What is shown above the notes.
struct ShownTable {
  const std::vector<Row>& rows;
  const std::map<std::string, std::string>& labels;  ///< policy_labels()
  bool marked = false;                               ///< some policy loses least
  bool by_evidence = false;                          ///< it is lost evidence that decides that
  bool several_cuts = false;
  bool bounded = false, priced = false, by_step = false;
};

/// Where the cut is, and what stands before the context and so is known to every policy.
std::string cut_text(const Row& row) {
  std::string out = row.cut;
  if (row.cut == "prompt" || row.cut == "question") out += " (" + cut_meaning(row.cut) + ")";
  if (row.cut != "prompt" && row.instruction_before.value_or(0) > 0)
    out +=
        " with an instruction of " + std::to_string(*row.instruction_before) + " tokens before the context";
  return out;
}

constexpr std::size_t kMostSpelledOut = 12;  ///< policies whose parameters are listed

/// What people are told below the table: one line each, none twice.
class Notes {
 public:
  explicit Notes(const ShownTable& table) : table_(table) {}

  std::vector<std::string> make() {
    if (table_.marked)
      add(table_.by_evidence ? "* loses least of the evidence, of the policies that have a budget"
                             : "* loses least of the policies that have a budget");
    if (table_.several_cuts)
      for (const Row& row : table_.rows) add("cut " + cut_text(row));
    add_never_evicted();
    for (const std::string& cells : skip_reasons(table_.rows)) add("skipped: " + cells);
    for (const Row& row : table_.rows)
      if (row.oracle) add(label(row) + " knows the future: a bound at its own split, not a policy");
    add_appending();
    if (table_.bounded)
      add("bounds: best of any choice (r), of any schedule that holds no more beside the budget (loss), at "
          "any split of the total");
    if (table_.by_step)
      add("attention loss at measured steps; every step, and the least that can be lost: --format csv");
    add_parameters();
    if (table_.priced)
      add("cache, TTFT and TPOT are modelled for one sequence on " + table_.rows.front().machine +
          ", the cache in fp16 (kvsim cost estimate --trace for more)");
    return std::move(notes_);
  }

 private:
  const std::string& label(const Row& row) const { return table_.labels.at(row.params); }

  void add(const std::string& text) { add_once(notes_, text); }

  /// What a policy that held everything lost is no result of its rule.
  void add_never_evicted() {
    std::vector<std::string> cells;
    for (const Row& row : table_.rows)
      if (!row.own_budget && row["evicted_tokens"] == 0.0) add_once(cells, label(row) + " at " + row.budget);
    if (!cells.empty()) add("never evicted: " + joined(cells));
  }

  /// Policies that compress the prompt only read more keys than the budget says: a comparison should know.
  void add_appending() {
    std::vector<std::string> policies;
    for (const Row& row : table_.rows)
      if (row.holding == policy::Holding::append_only) add_once(policies, label(row));
    if (!policies.empty()) add("keep every generated token beside the budget: " + joined(policies));
  }

  void add_parameters() {
    if (table_.labels.size() > kMostSpelledOut)
      return add("every value of every parameter: kvsim policy show NAME, or --format json");
    for (const Row& row : table_.rows) add(label(row) + " = " + row.params);
  }

  const ShownTable& table_;
  std::vector<std::string> notes_{};
};

std::string text_of(Console::Show show, const std::optional<double>& value) {
  if (!value) return "-";
  switch (show) {
    case Console::Show::rounded:
      return rounded_text(*value);
    case Console::Show::tokens:
      return rounded_text(*value, 1);
    case Console::Show::bytes:
      return bytes_text(static_cast<std::uint64_t>(*value));
    case Console::Show::milliseconds:
      return rounded_text(1e3 * *value, 3);
  }
  bug("unknown way to show a number");
}

std::string index_text(const std::optional<std::uint32_t>& number) {
  return number ? std::to_string(*number) : "-";
}

template <class Get>
bool differs(const std::vector<Row>& rows, Get get) {
  return std::ranges::any_of(rows, [&](const Row& row) { return get(row) != get(rows.front()); });
}

/// Rows of one scope; those of scope step are folded (console_table.hpp).
class ReplayTable {
 public:
  ReplayTable(std::vector<Row> rows, Scope scope, const StepLosses* losses = nullptr)
      : rows_(std::move(rows)),
        scope_(scope),
        losses_(losses),
        priced_(!rows_.empty() && !rows_.front().machine.empty()),
        bounded_(somewhere("attention_loss_bound")),
        several_traces_(differs(rows_, [](const Row& row) { return row.trace; })),
        several_cuts_(differs(rows_, [](const Row& row) { return row.cut; })),
        won_(winners(rows_)),
        labels_(policy_labels(rows_)) {
    std::map<std::string, std::set<std::optional<double>>> tokens_of;
    for (const Row& row : rows_) {
      tokens_of[row.budget].insert(row.budget_tokens);
      if (std::ranges::find(budgets_, row.budget) == budgets_.end()) budgets_.push_back(row.budget);
    }
    for (const auto& [budget, tokens] : tokens_of)
      if (tokens.size() > 1) tokens_differ_ = true;
    add_identity();
    if (losses_ != nullptr)
      add_steps();
    else
      add_metrics();
    fill();
  }

  void print(std::ostream& out) {
    std::vector<std::string> constants;
    if (!several_traces_ && !rows_.empty()) constants.push_back("trace " + rows_.front().trace);
    if (!several_cuts_ && !rows_.empty()) constants.push_back("cut " + cut_text(rows_.front()));
    if (!constants.empty()) out << joined(constants, "\n") << "\n\n";
    table_.print_head(out);
    for (const std::string& budget : budgets_) print_group(out, budget);
    table_.print_left_out(out);
    out << '\n';
    for (const std::string& note : Notes({.rows = rows_,
                                   .labels = labels_,
                                   .marked = std::ranges::find(won_, true) != won_.end(),
                                   .by_evidence = losses_ == nullptr && somewhere("evidence_loss"),
                                   .several_cuts = several_cuts_,
                                   .bounded = bounded_,
                                   .priced = priced_,
                                   .by_step = has_steps_})
                                       .make())
      out << note << '\n';
  }

 private:
  /// What stands in a row, by its place.
  using Text = std::function<std::string(std::size_t)>;

  void add(const std::string& heading, Align align, Text text) {
    table_.add_column(heading, align);
    columns_.push_back(std::move(text));
  }

  bool somewhere(std::string_view metric) const {
    return std::ranges::any_of(rows_, [&](const Row& row) { return row[metric].has_value(); });
  }

  bool differ(std::string_view metric, std::string_view other) const {
    return std::ranges::any_of(rows_, [&](const Row& row) { return row[metric] != row[other]; });
  }

  void add_identity() {
    if (several_traces_) add("trace", Align::left, [&](std::size_t i) { return rows_[i].trace; });
    if (several_cuts_) add("cut", Align::left, [&](std::size_t i) { return rows_[i].cut; });
    add("policy", Align::left,
        [&](std::size_t i) { return labels_.at(rows_[i].params) + (won_[i] ? " *" : ""); });
    if (scope_ == Scope::layer || scope_ == Scope::head)
      add("layer", Align::right, [&](std::size_t i) { return index_text(rows_[i].layer); });
    if (scope_ == Scope::head)
      add("head", Align::right, [&](std::size_t i) { return index_text(rows_[i].head); });
    if (tokens_differ_)
      add("budget tokens", Align::point,
          [&](std::size_t i) { return text_of(Console::Show::tokens, rows_[i].budget_tokens); });
  }

  void add_metrics() {
    for (const bool compared : {true, false})  // bounds and sizes come behind what policies are compared by
      for (const Metric& metric : all_metrics())
        if (metric.price == nullptr && (metric.better != Better::neither) == compared) add_metric(metric);
    if (bounded_) add("of", Align::left, [&](std::size_t i) { return holding_text(rows_[i]); });
    if (!priced_) return;
    for (const Metric& metric : all_metrics())
      if (metric.price != nullptr) add_metric(metric);
  }

  void add_metric(const Metric& metric) {
    const Console& console = metric.console;
    if (console.heading == nullptr || (console.only_with != nullptr && !somewhere(console.only_with)) ||
        (console.unlike != nullptr && !differ(metric.key, console.unlike)))
      return;
    add(console.heading, console.show == Console::Show::bytes ? Align::right : Align::point,
        [&, at = metric_index(metric.key)](std::size_t i) {
          return text_of(console.show, number(rows_[i].metric(at)));
        });
  }

  static std::string holding_text(const Row& row) {
    return row.holding ? std::string(policy::holding_name(*row.holding)) : "-";
  }

  void add_steps() {
    add("mean loss", Align::point,
        [&](std::size_t i) { return text_of(Console::Show::rounded, rows_[i]["attention_loss"]); });
    for (const std::uint64_t step : shown_steps(*losses_)) {
      has_steps_ = true;
      add("step " + std::to_string(step), Align::point, [&, step](std::size_t i) {
        const auto found = losses_->by_step[i].find(step);
        return found == losses_->by_step[i].end() ? "-" : rounded_text(found->second);
      });
    }
  }

  void fill() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::vector<std::string> fields;
      for (const Text& text : columns_) fields.push_back(text(i));
      table_.add_row(fields, won_[i]);
    }
  }

  void print_group(std::ostream& out, const std::string& budget) {
    bool first = true;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].budget != budget) continue;
      if (first) {
        out << (budget == budgets_.front() ? "" : "\n") << "budget " << budget;
        if (!tokens_differ_ && rows_[i].budget_tokens)
          out << " (" << rounded_text(*rows_[i].budget_tokens) << " tokens per lane)";
        out << '\n';
        first = false;
      }
      table_.print_row(out, i);
    }
  }

  const std::vector<Row> rows_;
  const Scope scope_;
  const StepLosses* losses_;  ///< of scope step, whose columns they are then; else null
  const bool priced_;         ///< for a machine
  const bool bounded_;        ///< over all splits
  const bool several_traces_, several_cuts_;
  const std::vector<bool> won_;
  const std::map<std::string, std::string> labels_;  ///< by params
  std::vector<std::string> budgets_{};               ///< in order of appearance
  bool tokens_differ_ = false;  ///< some budget means another number of tokens in another row
  bool has_steps_ = false;
  std::vector<Text> columns_{};
  TextTable table_{};
};

}  // namespace

void write_console_table(std::ostream& out, const std::vector<Row>& rows) {
  const Scope scope = rows.empty() ? Scope::all : rows.front().scope;
  if (scope != Scope::step) return ReplayTable(with_means(rows), scope).print(out);
  const StepLosses losses = with_means(step_losses(rows));
  ReplayTable(losses.rows, scope, &losses).print(out);
}

}  // namespace kvsim::analysis
