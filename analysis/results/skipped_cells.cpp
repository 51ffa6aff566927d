#include "analysis/results/skipped_cells.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analysis/results/policy_labels.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {

std::vector<std::string> skipped_cells(const std::vector<Row>& rows) {
  const std::map<std::string, std::string> labels = policy_labels(rows);
  std::set<std::string> traces, cuts;
  for (const Row& row : rows) {
    traces.insert(row.trace);
    cuts.insert(row.cut);
  }
  /// Where, who, and at which budget for what reason; in the order of the rows.
  struct Skipped {
    std::string where;
    std::vector<std::string> policies;
    std::string why;
  };
  std::vector<Skipped> all;
  for (const Row& row : rows) {
    if (row.skipped.empty()) continue;
    Skipped one{.where = (traces.size() > 1 ? row.trace + ", " : "") +
                         (cuts.size() > 1 ? "cut " + row.cut + ", " : ""),
                .policies = {},
                .why = " at " + row.budget + ": " + row.skipped};
    const auto same = std::ranges::find_if(
        all, [&](const Skipped& other) { return other.where == one.where && other.why == one.why; });
    add_once((same == all.end() ? all.emplace_back(std::move(one)) : *same).policies, labels.at(row.params));
  }
  std::vector<std::string> out;
  for (const Skipped& each : all) out.push_back(each.where + joined(each.policies) + each.why);
  return out;
}

}  // namespace kvsim::analysis
