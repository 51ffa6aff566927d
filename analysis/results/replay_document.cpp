#include "analysis/results/replay_document.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analysis/results/console/console_table.hpp"
#include "analysis/results/policy_labels.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {

const char* const kOpenLoopNote =
    "Open loop: each recorded query is answered exactly as the compressed cache would answer it; what that "
    "answer\n"
    "would have changed later is not seen.";

Document replay_document(const std::vector<Row>& rows, const ReplayInputs& inputs) {
  Document out{.analysis = "replay",
               .loop = "open",
               .traces = inputs.traces,
               .lists = {{"policies", inputs.policies}, {"budgets", inputs.budgets}},
               .settings = {{"scope", scope_name(inputs.scope)},
                            {"seed", inputs.seed},
                            {"importance", inputs.importance},
                            {"peak", inputs.peak}},
               .records = records_of(rows),
               .caveat = kOpenLoopNote,
               .console = [&rows](std::ostream& text) { write_console_table(text, rows); }};
  if (!inputs.machine.empty()) {
    out.settings.emplace_back("machine", inputs.machine);
    out.settings.emplace_back("model", inputs.model);
  }
  return out;
}

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

std::vector<std::string> skip_reasons(const std::vector<Row>& rows) {
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
