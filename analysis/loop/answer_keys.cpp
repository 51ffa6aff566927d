#include "analysis/loop/answer_keys.hpp"

#include <algorithm>

#include "analysis/loop/answer_rows.hpp"

namespace kvsim::analysis {

std::span<const std::string_view> answer_keys() {
  static constexpr std::string_view kKeys[] = {"item",   "workload",      "model",   "policy",  "params",
                                               "budget", "budget_tokens", "cut",     "turn",    "seed",
                                               "mode",   "turns",         "prefill", "profile", "positions"};
  return kKeys;
}

std::size_t answer_column(std::string_view key) {
  const std::vector<ColumnInfo>& all = answer_columns();
  return static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [&](const ColumnInfo& column) { return column.key == key; }) -
      all.begin());
}

}  // namespace kvsim::analysis
