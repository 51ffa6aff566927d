#include "analysis/report/study_summary.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/statistics/answer_statistics.hpp"

namespace kvsim::analysis {
namespace {

/// "8" or "8 to 12".
std::string span_text(const std::vector<TraceId>& traces, std::uint64_t TraceId::*length) {
  const auto [least, most] = std::ranges::minmax_element(
      traces, [&](const auto& a, const auto& b) { return a.*length < b.*length; });
  const std::string low = std::to_string((*least).*length), high = std::to_string((*most).*length);
  return low == high ? low : low + " to " + high;
}

/// Rows that tell what was studied: results, or answers where nothing was replayed.
class StudiedRows {
 public:
  explicit StudiedRows(const ReportedStudy& study) : study_(study) {
    const Records& means = study.table("means");
    if (!study.results.rows.empty()) return;
    std::map<std::string, std::string> roles;
    if (!means.rows.empty())
      for (const std::vector<Value>& row : means.rows)
        roles.emplace(exact_field(row[means.column("params")]), exact_field(row[means.column("role")]));
    answers_ = comparable_answers(study.table(kAnswersTable), roles, 0);
  }
  const Records& rows() const { return study_.results.rows.empty() ? answers_ : study_.results; }

 private:
  const ReportedStudy& study_;
  Records answers_{};
};

std::map<std::string, std::string> workload_by_trace(const Records& results) {
  std::map<std::string, std::string> out;
  const std::size_t trace = results.column("trace"), workload = results.column("workload");
  for (const std::vector<Value>& row : results.rows)
    out.emplace(exact_field(row[trace]), exact_field(row[workload]));
  return out;
}

std::string workloads_text(const Records& results) {
  std::map<std::string, std::uint64_t> traces;
  for (const auto& [trace, workload] : workload_by_trace(results))
    if (!workload.empty()) ++traces[workload];
  std::vector<std::string> items;
  for (const auto& [workload, n] : traces)
    items.push_back(quoted_name(workload) + " (" + std::to_string(n) + ")");
  return listed(items);
}

/// "36 policies, 4 oracles as bounds, 2 that keep what they like".
std::string policies_text(const Records& results) {
  std::map<std::string, std::set<std::string>> by_role;
  const std::size_t params = results.column("params"), role = results.column("role");
  for (const std::vector<Value>& row : results.rows)
    by_role[exact_field(row[role])].insert(exact_field(row[params]));
  std::vector<std::string> items;
  if (const std::size_t n = by_role["policy"].size(); n > 0)
    items.push_back(n == 1 ? "1 policy" : std::to_string(n) + " policies");
  if (const std::size_t n = by_role["oracle"].size(); n > 0)
    items.push_back(count_text(n, "oracle") + " as bounds");
  if (const std::size_t n = by_role["own_budget"].size(); n > 0)
    items.push_back(std::to_string(n) + " that " + (n == 1 ? "keeps what it likes" : "keep what they like"));
  return listed(items);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> study_facts(const ReportedStudy& study) {
  const StudiedRows studied(study);
  const Records& results = studied.rows();
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back("Traces", std::to_string(distinct(results, "trace").size()));
  facts.emplace_back("Models", names_text(study.models));
  facts.emplace_back("Workloads", workloads_text(results));
  if (!study.table(kAnswersTable).rows.empty())
    facts.emplace_back("Loops", study.results.rows.empty()
                                    ? "closed: the running model answers"
                                    : "open: recorded runs are replayed; closed: the running model answers");
  if (!study.traces.empty()) {
    facts.emplace_back("Prompt tokens", span_text(study.traces, &TraceId::prompt));
    facts.emplace_back("Generated tokens", span_text(study.traces, &TraceId::decode));
  }
  std::vector<std::string> cuts;
  for (const std::string& cut : cuts_of(results))
    cuts.push_back(quoted_name(cut) + " (" + cut_meaning(cut) + ")");
  facts.emplace_back("Cuts", listed(cuts));
  facts.emplace_back("Policies", policies_text(results));
  std::vector<std::string> budgets;
  for (const std::string& budget : distinct(results, "budget")) budgets.push_back(budget_text(budget));
  facts.emplace_back("Budgets", listed(budgets));
  facts.emplace_back("Seeds", listed(distinct(results, "seed")));
  return facts;
}

SortableTable trace_table(const ReportedStudy& study) {
  SortableTable table{.caption = "Traces", .columns = {}, .rows = {}};
  table.columns = {{"trace"},
                   {"workload"},
                   {"prompt", "tokens of the prompt", true},
                   {"generated", "generated tokens", true},
                   {"content", "SHA-256 of the recorded tensors"}};
  std::map<std::string, std::string> workloads = workload_by_trace(StudiedRows(study).rows());
  for (const TraceId& trace : study.traces)
    table.rows.push_back({{.shown = trace.name},
                          {.shown = workloads[trace.name]},
                          {.shown = std::to_string(trace.prompt), .order = std::to_string(trace.prompt)},
                          {.shown = std::to_string(trace.decode), .order = std::to_string(trace.decode)},
                          {.shown = trace.content_sha256}});
  return table;
}

SortableTable policy_table(const ReportedStudy& study) {
  const StudiedRows studied(study);
  const Records& results = studied.rows();
  SortableTable table{.caption = "Policies", .columns = {{"policy"}, {"role"}, {"composition"}}, .rows = {}};
  const std::size_t policy = results.column("policy"), params = results.column("params"),
                    role = results.column("role");
  std::set<std::string> seen;
  for (const std::vector<Value>& row : results.rows)
    if (seen.insert(exact_field(row[params])).second)
      table.rows.push_back({{.shown = exact_field(row[policy])},
                            {.shown = exact_field(row[role])},
                            {.shown = exact_field(row[params])}});
  return table;
}

}  // namespace kvsim::analysis
