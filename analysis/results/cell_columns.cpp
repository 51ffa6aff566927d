#include "analysis/results/cell_columns.hpp"

#include "sim/base/error.hpp"
#include "sim/replay/budget.hpp"

namespace kvsim::analysis {

std::vector<std::string> cuts_of(const Records& table) {
  return has_column(table, "cut") ? distinct(table, "cut") : std::vector<std::string>();
}

Records at_cut(const Records& table, const std::string& cut) {
  if (!has_column(table, "cut")) return table;
  Records out{table.columns, {}};
  const std::size_t column = table.column("cut");
  for (const std::vector<Value>& row : table.rows)
    if (exact_field(row[column], "") == cut) out.rows.push_back(row);
  return out;
}

std::string cut_meaning(const std::string& cut) {
  if (cut == "prompt") return "question known to the policy";
  if (cut == "question") return "question not known to the policy";
  return cut.empty() ? "" : "cut after " + cut + " tokens";
}

std::string cut_title(const std::string& cut) {
  if (cut != "prompt" && cut != "question") return cut_meaning(cut);
  return "cut " + cut + ": " + cut_meaning(cut);
}

namespace {

const char* kind_name(sim::Budget::Unit unit) {
  switch (unit) {
    case sim::Budget::Unit::tokens:
      return "tokens";
    case sim::Budget::Unit::share:
      return "share";
    case sim::Budget::Unit::bytes:
      return "bytes";
  }
  bug("unknown kind of budget");
}

}  // namespace

const std::vector<ColumnInfo>& budget_columns() {
  static const std::vector<ColumnInfo> columns{
      {"budget_kind", "",
       "what the budget is given in: tokens per lane, share of the prompt, bytes of the cache"},
      {"budget_number", "of its kind", "the budget as a number: 128, 0.05 for 5%, 67108864 for 64MiB"}};
  return columns;
}

std::array<Value, 2> budget_fields(const std::string& budget) {
  if (budget.empty()) return {};
  const sim::Budget parsed = sim::parse_budget(budget);
  return {std::string(kind_name(parsed.unit)), parsed.value};
}

Records with_budget_numbers(Records records) {
  if (!has_column(records, "budget") || has_column(records, "budget_kind")) return records;
  const std::size_t budget = records.column("budget");
  const auto behind = static_cast<std::ptrdiff_t>(budget) + 1;
  const std::vector<ColumnInfo>& added = budget_columns();
  records.columns.insert(records.columns.begin() + behind, added.begin(), added.end());
  for (std::vector<Value>& row : records.rows) {
    const std::array<Value, 2> fields = budget_fields(exact_field(row[budget]));
    row.insert(row.begin() + behind, fields.begin(), fields.end());
  }
  return records;
}

}  // namespace kvsim::analysis
