#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/results/cuts.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/results/tables.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostSpelledOut = 12;  ///< policies whose parameters are listed under the table
constexpr std::size_t kMostSteps = 8;        ///< measured steps that all have their column
constexpr int kTokenDecimals = 1;            ///< of means of whole tokens
std::string shown_text(Console::Show show, const std::optional<double>& number) {
  if (!number) return "-";
  switch (show) {
    case Console::Show::rounded:
      return rounded_text(*number);
    case Console::Show::tokens:
      return rounded_text(*number, kTokenDecimals);
    case Console::Show::bytes:
      return bytes_text(static_cast<std::uint64_t>(*number));
    case Console::Show::milliseconds:
      return rounded_text(1e3 * *number, 3);
  }
  bug("unknown way to show a number");
}
std::string index(const std::optional<std::uint32_t>& number) {
  return number ? std::to_string(*number) : "-";
}

template <class Get>
bool differs(const std::vector<Row>& rows, Get get) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return get(row) != get(rows.front()); });
}

/// What is compared with what when the best policy is looked for.
using Contest = std::tuple<std::string, std::string, std::string, std::optional<std::uint32_t>,
                           std::optional<std::uint32_t>>;
Contest contest_of(const Row& row) {
  return {row.trace, row.cut, row.budget, row.layer, row.head};
}

/// Lower is better; undefined for rows out of competition: skipped, not bound to a budget, or not a policy.
/// Where evidence is marked, what is lost of it decides: it predicts answers, which attention loss does not.
std::optional<double> badness(const Row& row) {
  if (row.own_budget || row.oracle) return {};
  for (const Metric* metric : leading_metrics())
    if (const std::optional<double> value = row[metric->key])
      return metric->better == Better::higher ? -*value : *value;
  return {};
}

/// Rows that lose least in their contest, ties included; none where there is nothing to win.
std::vector<bool> winners(const std::vector<Row>& rows) {
  struct Range {
    double least, most;
  };
  std::map<Contest, Range> ranges;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row);
    if (!bad) continue;
    const auto [entry, fresh] = ranges.try_emplace(contest_of(row), Range{*bad, *bad});
    entry->second.least = std::min(entry->second.least, *bad);
    entry->second.most = std::max(entry->second.most, *bad);
  }
  std::vector<bool> won;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row);
    const auto range = ranges.find(contest_of(row));
    won.push_back(bad && *bad == range->second.least && range->second.least < range->second.most);
  }
  return won;
}

/// Attention loss by measured step.
using Course = std::map<std::uint64_t, double>;

/// Rows of scope step folded into one per cell.
struct Courses {
  std::vector<Row> rows;       ///< attention loss is its mean over steps
  std::vector<Course> losses;  ///< per row; empty: skipped
};

Courses courses_of(const std::vector<Row>& rows) {
  Courses out;
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (before == nullptr || *row.step <= *before->step) {
      out.rows.push_back(row);
      out.losses.emplace_back();
    }
    before = &row;
    if (const std::optional<double> loss = row["attention_loss"]) out.losses.back().emplace(*row.step, *loss);
  }
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    if (out.losses[i].empty()) continue;
    double sum = 0;
    for (const auto& [step, loss] : out.losses[i]) sum += loss;
    out.rows[i].set("attention_loss", sum / static_cast<double>(out.losses[i].size()));
  }
  return out;
}

/// All of a few steps; of many 0, 1, 2, 4, ... and the last, because loss grows fastest at first.
std::vector<std::uint64_t> shown_steps(const std::vector<Course>& courses) {
  std::set<std::uint64_t> steps;
  for (const Course& course : courses)
    for (const auto& [step, loss] : course) steps.insert(step);
  if (steps.size() > kMostSteps) {
    const std::uint64_t last = *steps.rbegin();
    std::erase_if(steps, [&](std::uint64_t step) { return step != last && (step & (step - 1)) != 0; });
  }
  return {steps.begin(), steps.end()};
}

class PeopleTable {
 public:
  /// `losses`: of scope step, per row and step; whose columns they are then.
  explicit PeopleTable(const std::vector<Row>& rows, std::vector<Course> losses = {})
      : rows_(rows),
        losses_(std::move(losses)),
        priced_(!rows.empty() && !rows.front().machine.empty()),
        bounded_(somewhere("attention_loss_bound")),
        several_traces_(differs(rows, [](const Row& row) { return row.trace; })),
        several_cuts_(differs(rows, [](const Row& row) { return row.cut; })),
        won_(winners(rows)),
        labels_(policy_labels(rows)) {
    std::map<std::string, std::set<std::optional<double>>> tokens_of;
    for (const Row& row : rows) {
      tokens_of[row.budget].insert(row.budget_tokens);
      if (std::find(budgets_.begin(), budgets_.end(), row.budget) == budgets_.end())
        budgets_.push_back(row.budget);
    }
    for (const auto& [budget, tokens] : tokens_of)
      if (tokens.size() > 1) tokens_differ_ = true;
  }

  void print(std::ostream& out) {
    fill();
    std::vector<std::string> constants;
    if (!several_traces_ && !rows_.empty()) constants.push_back("trace " + rows_.front().trace);
    if (!several_cuts_ && !rows_.empty()) constants.push_back("cut " + cut_text(rows_.front()));
    if (!constants.empty()) out << joined(constants, "\n") << "\n\n";
    table_.print_head(out);
    for (const std::string& budget : budgets_) print_group(out, budget);
    print_notes(out);
  }

 private:
  const std::string& label(const Row& row) const { return labels_.at(row.params); }
  /// Where the cut is, and what stands before the context and so is known to every policy.
  static std::string cut_text(const Row& row) {
    std::string out = row.cut;
    if (row.cut == "prompt" || row.cut == "question") out += " (" + cut_meaning(row.cut) + ")";
    if (row.cut != "prompt" && row.instruction_before.value_or(0) > 0)
      out +=
          " with an instruction of " + std::to_string(*row.instruction_before) + " tokens before the context";
    return out;
  }
  static bool by_layer(Scope scope) { return scope == Scope::layer || scope == Scope::head; }

  void fill() {
    const Scope scope = rows_.empty() ? Scope::all : rows_.front().scope;
    if (several_traces_) table_.add_column("trace", Align::left);
    if (several_cuts_) table_.add_column("cut", Align::left);
    table_.add_column("policy", Align::left);
    if (by_layer(scope)) table_.add_column("layer", Align::right);
    if (scope == Scope::head) table_.add_column("head", Align::right);
    if (tokens_differ_) table_.add_column("budget tokens", Align::point);
    if (scope == Scope::step)
      add_step_columns();
    else
      add_metric_columns();
    for (std::size_t i = 0; i < rows_.size(); ++i) table_.add_row(fields(i));
  }

  bool somewhere(const char* metric) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return row[metric].has_value(); });
  }

  void add_metric_columns() {
    for (const Metric& metric : all_metrics())
      if (metric.price == nullptr) add_metric_column(metric);
    if (bounded_) table_.add_column("of", Align::left);
    if (!priced_) return;
    for (const Metric& metric : all_metrics())
      if (metric.price != nullptr) add_metric_column(metric);
  }

  void add_metric_column(const Metric& metric) {
    const Console& console = metric.console;
    if (console.heading == nullptr || (console.only_with != nullptr && !somewhere(console.only_with))) return;
    shown_.push_back(&metric);
    table_.add_column(console.heading, console.show == Console::Show::bytes ? Align::right : Align::point);
  }

  void add_step_columns() {
    steps_ = shown_steps(losses_);
    table_.add_column("mean loss", Align::point);
    for (const std::uint64_t step : steps_) table_.add_column("step " + std::to_string(step), Align::point);
  }

  std::vector<std::string> fields(std::size_t i) const {
    const Row& row = rows_[i];
    std::vector<std::string> out;
    if (several_traces_) out.push_back(row.trace);
    if (several_cuts_) out.push_back(row.cut);
    out.push_back(label(row) + (won_[i] ? " *" : ""));
    if (by_layer(row.scope)) out.push_back(index(row.layer));
    if (row.scope == Scope::head) out.push_back(index(row.head));
    if (tokens_differ_) out.push_back(shown_text(Console::Show::tokens, row.budget_tokens));
    if (row.scope == Scope::step)
      append_steps(out, i);
    else
      append_metrics(out, row);
    return out;
  }

  void append_steps(std::vector<std::string>& out, std::size_t i) const {
    out.push_back(shown_text(Console::Show::rounded, rows_[i]["attention_loss"]));
    for (const std::uint64_t step : steps_) {
      const auto found = losses_[i].find(step);
      out.push_back(found == losses_[i].end() ? "-" : rounded_text(found->second));
    }
  }

  void append_metrics(std::vector<std::string>& out, const Row& row) const {
    bool of = bounded_;
    for (const Metric* metric : shown_) {
      if (metric->price != nullptr && std::exchange(of, false)) out.push_back(holding_text(row));
      out.push_back(shown_text(metric->console.show, row[metric->key]));
    }
    if (of) out.push_back(holding_text(row));
  }

  static std::string holding_text(const Row& row) {
    return row.holding ? std::string(policy::holding_name(*row.holding)) : "-";
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

  void print_notes(std::ostream& out) const {
    std::vector<std::string> notes;
    const auto note = [&](const std::string& text) {
      if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
    };
    if (std::find(won_.begin(), won_.end(), true) != won_.end())
      note(shown_.empty() || std::string_view(shown_.front()->key) != "evidence_loss"
               ? "* loses least of the policies that have a budget"
               : "* loses least of the evidence, of the policies that have a budget");
    for (const Row& row : rows_)
      if (several_cuts_) note("cut " + cut_text(row));
    note_never_evicted(note);
    for (const Row& row : rows_)
      if (!row.skipped.empty())
        note("skipped: " + (several_traces_ ? row.trace + ", " : "") +
             (several_cuts_ ? "cut " + row.cut + ", " : "") + label(row) + " at " + row.budget + ": " +
             row.skipped);
    for (const Row& row : rows_)
      if (row.oracle) note(label(row) + " knows the future: a bound at its own split, not a policy");
    note_appending(note);
    if (bounded_)
      note(
          "bounds: best of any choice (r), of any schedule that holds no more beside the budget (loss), at "
          "any "
          "split of the total");
    if (!steps_.empty())
      note("attention loss at measured steps; every step, and the least that can be lost: --format csv");
    if (labels_.size() > kMostSpelledOut)
      note("every value of every parameter: kvsim policy show NAME, or --format json");
    else
      for (const Row& row : rows_) note(label(row) + " = " + row.params);
    if (priced_)
      note("cache, TTFT and TPOT are modelled for one sequence on " + rows_.front().machine +
           ", the cache in fp16 (kvsim cost --trace for more)");
    out << '\n';
    for (const std::string& text : notes) out << text << '\n';
    out << kOpenLoopNote << '\n';
  }

  /// What a policy that held everything lost is no result of its rule.
  void note_never_evicted(const auto& note) const {
    std::vector<std::string> who;
    for (const Row& row : rows_) {
      const std::string where = label(row) + " at " + row.budget;
      if (!row.own_budget && row["evicted_tokens"] == 0.0 &&
          std::find(who.begin(), who.end(), where) == who.end())
        who.push_back(where);
    }
    if (!who.empty()) note("never evicted: " + joined(who));
  }

  /// Policies that compress the prompt only read more keys than the budget says: a comparison should know.
  void note_appending(const auto& note) const {
    std::string who;
    for (const Row& row : rows_) {
      const std::string name = label(row);
      if (row.holding == policy::Holding::append_only &&
          (", " + who + ",").find(", " + name + ",") == std::string::npos)
        who += (who.empty() ? "" : ", ") + name;
    }
    if (!who.empty()) note("keep every generated token beside the budget: " + who);
  }

  const std::vector<Row>& rows_;
  const std::vector<Course> losses_;
  const bool priced_;   ///< for a machine
  const bool bounded_;  ///< over all splits
  const bool several_traces_, several_cuts_;
  const std::vector<bool> won_;
  std::vector<std::string> budgets_;                 ///< in order of appearance
  const std::map<std::string, std::string> labels_;  ///< by params
  bool tokens_differ_ = false;        ///< some budget means another number of tokens in another row
  std::vector<std::uint64_t> steps_;  ///< that have a column
  std::vector<const Metric*> shown_;
  TextTable table_;
};

}  // namespace

void write_console_table(std::ostream& out, const std::vector<Row>& rows) {
  if (rows.empty() || rows.front().scope != Scope::step) {
    PeopleTable(rows).print(out);
  } else {
    Courses courses = courses_of(rows);
    PeopleTable(courses.rows, std::move(courses.losses)).print(out);
  }
}

}  // namespace kvsim::analysis
