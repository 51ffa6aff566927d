#include "analysis/results/cuts.hpp"

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

}  // namespace kvsim::analysis
