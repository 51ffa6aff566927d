#include "analysis/results/identical_policies.hpp"

#include <algorithm>

namespace kvsim::analysis {
namespace {

/// Rows of one policy.
struct Findings {
  std::string params;
  std::vector<std::size_t> rows;
  bool ran = false;
};

class PolicyComparison {
 public:
  explicit PolicyComparison(const Records& rows)
      : rows_(rows), policy_(rows.column("policy")), params_(rows.column("params")) {}

  std::vector<Findings> by_policy() const {
    const std::size_t kept = rows_.column("kept_tokens");
    std::vector<Findings> all;
    for (std::size_t i = 0; i < rows_.rows.size(); ++i) {
      const std::string& name = text(rows_.rows[i][params_]);
      auto found = std::ranges::find_if(all, [&](const Findings& f) { return f.params == name; });
      if (found == all.end()) found = all.insert(all.end(), Findings{name, {}, false});
      found->rows.push_back(i);
      // A skipped cell kept nothing.
      found->ran = found->ran || !std::holds_alternative<std::monostate>(rows_.rows[i][kept]);
    }
    return all;
  }

  /// In everything but their names.
  bool same(const Findings& a, const Findings& b) const {
    return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(),
                      [&](std::size_t i, std::size_t j) { return same(rows_.rows[i], rows_.rows[j]); });
  }

 private:
  bool same(const std::vector<Value>& a, const std::vector<Value>& b) const {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (i != policy_ && i != params_ && a[i] != b[i]) return false;
    return true;
  }

  const Records& rows_;
  std::size_t policy_, params_;
};

}  // namespace

std::vector<std::vector<std::string>> identical_policies(const Records& rows) {
  const PolicyComparison comparison(rows);
  const std::vector<Findings> all = comparison.by_policy();
  std::vector<std::vector<std::string>> groups;
  std::vector<bool> grouped(all.size(), false);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (grouped[i] || !all[i].ran) continue;
    std::vector<std::string> group{all[i].params};
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (grouped[j] || !comparison.same(all[i], all[j])) continue;
      grouped[j] = true;
      group.push_back(all[j].params);
    }
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace kvsim::analysis
