#include "analysis/results/budget_columns.hpp"

#include "sim/base/error.hpp"
#include "sim/replay/budget.hpp"

namespace kvsim::analysis {
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
