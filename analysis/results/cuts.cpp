#include "analysis/results/cuts.hpp"

#include <algorithm>

namespace kvsim::analysis {
namespace {

bool has_cuts(const Records& table) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [](const ColumnInfo& column) { return column.key == "cut"; });
}

}  // namespace

std::vector<std::string> cuts_of(const Records& table) {
  if (!has_cuts(table)) return {};
  return distinct(table, "cut");
}

Records at_cut(const Records& table, const std::string& cut) {
  if (!has_cuts(table)) return table;
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

}  // namespace kvsim::analysis
