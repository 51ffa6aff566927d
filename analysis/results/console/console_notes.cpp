#include "analysis/results/console/console_notes.hpp"

#include "analysis/results/cuts.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostSpelledOut = 12;  ///< policies whose parameters are listed

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
    add_skipped();
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

  void add_skipped() {
    for (const Row& row : table_.rows)
      if (!row.skipped.empty())
        add("skipped: " + (table_.several_traces ? row.trace + ", " : "") +
            (table_.several_cuts ? "cut " + row.cut + ", " : "") + label(row) + " at " + row.budget + ": " +
            row.skipped);
  }

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

}  // namespace

std::vector<std::string> console_notes(const ShownTable& table) {
  return Notes(table).make();
}

std::string cut_text(const Row& row) {
  std::string out = row.cut;
  if (row.cut == "prompt" || row.cut == "question") out += " (" + cut_meaning(row.cut) + ")";
  if (row.cut != "prompt" && row.instruction_before.value_or(0) > 0)
    out +=
        " with an instruction of " + std::to_string(*row.instruction_before) + " tokens before the context";
  return out;
}

}  // namespace kvsim::analysis
