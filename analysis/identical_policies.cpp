#include "analysis/identical_policies.hpp"

#include <algorithm>
#include <string_view>

namespace kvsim::analysis {
namespace {

/// Everything a policy's rows say, but its names.
struct Findings {
  std::string params;
  std::vector<Value> values;
  bool ran = false;
};

void add(Findings& findings, const Row& row) {
  for (const Column& column : columns()) {
    const std::string_view key = column.key;
    if (key != "policy" && key != "params") findings.values.push_back(column.get(row));
  }
  findings.ran = findings.ran || row.skipped.empty();
}

}  // namespace

std::vector<std::vector<std::string>> identical_policies(const std::vector<Row>& rows) {
  std::vector<Findings> all;
  for (const Row& row : rows) {
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Findings& f) { return f.params == row.params; });
    if (found == all.end()) found = all.insert(all.end(), Findings{row.params, {}, false});
    add(*found, row);
  }
  std::vector<std::vector<std::string>> groups;
  std::vector<bool> grouped(all.size(), false);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (grouped[i] || !all[i].ran) continue;
    std::vector<std::string> group{all[i].params};
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (grouped[j] || all[j].values != all[i].values) continue;
      grouped[j] = true;
      group.push_back(all[j].params);
    }
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace kvsim::analysis
