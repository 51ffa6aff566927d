#include "analysis/identical_policies.hpp"

#include <algorithm>

namespace kvsim::analysis {
namespace {

/// Everything a policy's rows say, but its names.
struct Findings {
  std::string params;
  std::vector<Value> values;
  bool ran = false;
};

}  // namespace

std::vector<std::vector<std::string>> identical_policies(const Records& rows) {
  const std::size_t policy = rows.column("policy"), params = rows.column("params"),
                    kept = rows.column("kept_tokens");
  std::vector<Findings> all;
  for (const std::vector<Value>& row : rows.rows) {
    const auto& name = std::get<std::string>(row[params]);
    auto found = std::find_if(all.begin(), all.end(), [&](const Findings& f) { return f.params == name; });
    if (found == all.end()) found = all.insert(all.end(), Findings{name, {}, false});
    for (std::size_t i = 0; i < row.size(); ++i)
      if (i != policy && i != params) found->values.push_back(row[i]);
    // A skipped cell kept nothing.
    found->ran = found->ran || !std::holds_alternative<std::monostate>(row[kept]);
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
