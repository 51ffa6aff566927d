#include "analysis/loop/part_rows.hpp"

#include <algorithm>
#include <string_view>

namespace kvsim::analysis {
namespace {

constexpr std::string_view kKeys[] = {"item",    "workload",    "model",         "policy",        "params",
                                      "budget",  "budget_kind", "budget_number", "budget_tokens", "cut",
                                      "turn",    "seed",        "mode",          "turns",         "prefill",
                                      "profile", "positions"};

/// The number of a column of answer_columns().
std::size_t answer_column(std::string_view key) {
  const std::vector<ColumnInfo>& all = answer_columns();
  return static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [&](const ColumnInfo& column) { return column.key == key; }) -
      all.begin());
}

}  // namespace

std::vector<ColumnInfo> columns_of_parts(const std::vector<ColumnInfo>& mine) {
  std::vector<ColumnInfo> out;
  for (const std::string_view key : kKeys) out.push_back(answer_columns()[answer_column(key)]);
  out.insert(out.end(), mine.begin(), mine.end());
  out.push_back(answer_columns()[answer_column("skipped")]);
  return out;
}

std::vector<std::vector<Value>> rows_of_parts(const AnswerItem& item, const sim::LoopRequest& request,
                                              const sim::LoopOutcome& outcome, std::size_t mine,
                                              const PartsOf& parts_of) {
  const std::vector<std::vector<Value>> answers = answer_rows(item, request, outcome);
  const std::size_t skipped = answer_column("skipped");
  std::vector<std::vector<Value>> rows;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const sim::LoopCell& cell = outcome.cells[i / request.modes.size()];
    std::vector<std::vector<Value>> parts{std::vector<Value>(mine)};
    if (cell.skipped.empty()) parts = parts_of(cell.modes[i % request.modes.size()]);
    for (const std::vector<Value>& part : parts) {
      std::vector<Value>& row = rows.emplace_back();
      for (const std::string_view key : kKeys) row.push_back(answers[i][answer_column(key)]);
      row.insert(row.end(), part.begin(), part.end());
      row.push_back(answers[i][skipped]);
    }
  }
  return rows;
}

}  // namespace kvsim::analysis
