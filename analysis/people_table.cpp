#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <tuple>

#include "analysis/numbers.hpp"
#include "analysis/policy_labels.hpp"
#include "analysis/tables.hpp"
#include "analysis/text_table.hpp"

namespace kvsim::analysis {
namespace {

std::string rounded(const std::optional<double>& number) {
  return number ? rounded_text(*number) : "-";
}
constexpr std::size_t kMostSpelledOut = 12;  ///< policies whose parameters are listed under the table
constexpr int kTokenDecimals = 1;            ///< of means of whole tokens
std::string tokens(const std::optional<double>& number) {
  return number ? rounded_text(*number, kTokenDecimals) : "-";
}
std::string index(const std::optional<std::uint32_t>& number) {
  return number ? std::to_string(*number) : "-";
}

template <class Get>
bool differs(const std::vector<Row>& rows, Get get) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return get(row) != get(rows.front()); });
}

/// What is compared with what when the best policy is looked for.
using Contest =
    std::tuple<std::string, std::string, std::optional<std::uint32_t>, std::optional<std::uint32_t>>;
Contest contest_of(const Row& row) {
  return {row.trace, row.budget, row.layer, row.head};
}

/// Lower is better; undefined for rows out of competition: skipped, not bound to a budget, or not a policy.
std::optional<double> badness(const Row& row) {
  if (row.own_budget || row.oracle) return {};
  if (row.attention_loss) return row.attention_loss;
  if (row.r) return -*row.r;
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

class PeopleTable {
 public:
  explicit PeopleTable(const std::vector<Row>& rows)
      : rows_(rows),
        several_traces_(differs(rows, [](const Row& row) { return row.trace; })),
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
    if (!several_traces_ && !rows_.empty()) out << "trace " << rows_.front().trace << "\n\n";
    table_.print_head(out);
    for (const std::string& budget : budgets_) print_group(out, budget);
    print_notes(out);
  }

 private:
  const std::string& label(const Row& row) const { return labels_.at(row.params); }

  void fill() {
    const Scope scope = rows_.empty() ? Scope::all : rows_.front().scope;
    if (several_traces_) table_.add_column("trace", Align::left);
    table_.add_column("policy", Align::left);
    if (scope != Scope::all) table_.add_column("layer", Align::right);
    if (scope == Scope::head) table_.add_column("head", Align::right);
    if (tokens_differ_) table_.add_column("budget tokens", Align::point);
    for (const char* heading : {"r", "r oracle", "isr", "attention loss", "loss oracle", "over oracle",
                                "output error", "kept tokens"}) {
      table_.add_column(heading, Align::point);
    }
    table_.add_column("kept size", Align::right);
    for (std::size_t i = 0; i < rows_.size(); ++i) table_.add_row(fields(rows_[i], won_[i], scope));
  }

  std::vector<std::string> fields(const Row& row, bool won, Scope scope) const {
    std::vector<std::string> out;
    if (several_traces_) out.push_back(row.trace);
    out.push_back(label(row) + (won ? " *" : ""));
    if (scope != Scope::all) out.push_back(index(row.layer));
    if (scope == Scope::head) out.push_back(index(row.head));
    if (tokens_differ_) out.push_back(tokens(row.budget_tokens));
    for (const std::optional<double>& number :
         {row.r, row.r_oracle, row.isr, row.attention_loss, row.attention_loss_oracle, row.excess_loss(),
          row.output_error}) {
      out.push_back(rounded(number));
    }
    out.push_back(tokens(row.kept_tokens));
    out.push_back(row.kept_bytes ? bytes_text(*row.kept_bytes) : "-");
    return out;
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
      note("* loses least of the policies that have a budget");
    for (const Row& row : rows_)
      if (!row.skipped.empty())
        note("skipped: " + (several_traces_ ? row.trace + ", " : "") + label(row) + " at " + row.budget +
             ": " + row.skipped);
    for (const Row& row : rows_)
      if (row.oracle) note(label(row) + " knows the future: a bound, not a policy");
    note_appending(note);
    if (labels_.size() > kMostSpelledOut)
      note("every value of every parameter: kvsim policy show NAME, or --format json");
    else
      for (const Row& row : rows_) note(label(row) + " = " + row.params);
    out << '\n';
    for (const std::string& text : notes) out << text << '\n';
    out << kOpenLoopNote << '\n';
  }

  /// Policies that compress the prompt only read more keys than the budget says: a comparison should know.
  void note_appending(const auto& note) const {
    std::string who;
    for (const Row& row : rows_) {
      const std::string name = label(row);
      if (row.appends && (", " + who + ",").find(", " + name + ",") == std::string::npos)
        who += (who.empty() ? "" : ", ") + name;
    }
    if (!who.empty()) note("keep every generated token beside the budget: " + who);
  }

  const std::vector<Row>& rows_;
  const bool several_traces_;
  const std::vector<bool> won_;
  std::vector<std::string> budgets_;                 ///< in order of appearance
  const std::map<std::string, std::string> labels_;  ///< by params
  bool tokens_differ_ = false;  ///< some budget means another number of tokens in another row
  TextTable table_;
};

}  // namespace

void write_people_table(std::ostream& out, const std::vector<Row>& rows) {
  PeopleTable(rows).print(out);
}

}  // namespace kvsim::analysis
