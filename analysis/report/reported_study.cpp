#include "analysis/report/reported_study.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "analysis/cost/cost_rows.hpp"
#include "analysis/cost/price_table.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/kinds/kind.hpp"
#include "analysis/report/winners.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 1ULL << 28;
constexpr std::size_t kMostValues = 10'000'000;

/// What the study says of itself.
void read_result(ReportedStudy& study, const JsonObject& result) {
  constexpr std::uint64_t kMostTokens = 1ULL << 40;
  std::uint64_t unreadable = 0;
  for (const boost::json::value& entry : result.array("traces")) {
    const JsonObject trace(entry, result.path("traces"));
    if (trace.has("problem")) {
      ++unreadable;
      continue;
    }
    study.traces.push_back({trace.text("name"), trace.text_or("content_sha256", ""),
                            trace.integer_or("prompt", 0, kMostTokens, 0),
                            trace.integer_or("decode", 0, kMostTokens, 0)});
    if (const std::string model = trace.text_or("model", ""); !model.empty()) add_once(study.models, model);
  }
  for (const boost::json::value& note : result.array("notes"))
    if (note.is_string()) study.notes.emplace_back(note.as_string());
  if (result.flag_or("complete", false)) return;
  study.incomplete = unreadable > 0
                         ? std::to_string(unreadable) + " of its traces could not be read and are left out."
                         : "it was stopped, or is still at work. Go on with kvsim study --resume.";
}

void read_configuration(ReportedStudy& study, std::string text, const std::string& path) {
  study.configuration = std::move(text);
  const boost::json::value document = parse_strict_json(study.configuration, path, kMostValues);
  const JsonObject config(document, path);
  study.title = config.text_or("title", "");
  if (study.title.empty()) study.title = config.text_or("name", "");
  if (config.has("result")) {
    const JsonObject result = config.object("result");
    if (const std::uint64_t schema = result.integer_or("schema_version", 0, ~0ULL, kSchemaVersion);
        schema != kSchemaVersion)
      input_error("has results of schema " + std::to_string(schema) + ", this kvsim reads schema " +
                      std::to_string(kSchemaVersion),
                  path, "Run the study again: kvsim study " + shell_word(path) + " -o NEW_FOLDER");
    read_result(study, result);
  }
  if (config.has("statistics")) {
    study.confidence = config.object("statistics").number_or("confidence", 0, 1, 0.95);
    study.least_full = config.object("statistics").number_or("least_full", 0, 1, 0);
  }
}

}  // namespace

const Records& ReportedStudy::table(const std::string& name) const {
  static const Records nothing;
  const auto found = tables.find(name);
  return found == tables.end() ? nothing : found->second;
}

std::vector<ColumnInfo> table_columns(std::string_view table) {
  const Statistics empty = empty_statistics();
  if (table == "means") return empty.means.columns;
  if (table == "differences") return empty.differences.columns;
  if (table == "ranks") return empty.ranks.columns;
  if (table == "cost") return cost_columns();
  if (table == kPriceTable) return price_columns();
  if (table == kWinnersTable) return winners_columns();
  if (table == kDriftTable) return drift_columns();
  if (table == kTokensTable) return token_part_columns();
  for (const FigureKind& kind : figure_kinds())
    if (table == kind.table && kind.columns != nullptr) return kind.columns();
  for (const Kind& kind : kinds())
    if (table == kind.name) return kind.summarise == nullptr ? kind.columns : kind.summary_columns;
  return {};
}

ReportedStudy read_reported_study(const std::string& folder, const std::string& configuration) {
  const fs::path root = folder;
  std::error_code failed;
  if (!fs::is_directory(root, failed))
    usage_error("is no folder", folder, "Name the folder that kvsim study -o wrote.");
  if (!fs::exists(root / "results.csv", failed))
    usage_error("no results.csv in it", folder,
                "Name the folder that kvsim study -o wrote; if it was stopped, resume it.");
  ReportedStudy study;
  const std::string file = (root / "study.json").string();
  if (!configuration.empty())
    read_configuration(study, configuration, file);
  else if (fs::exists(file, failed))
    read_configuration(study, read_file(file, kMostBytes), file);
  for (NamedTable& table : read_tables(folder)) {
    const bool results = is_results_table(table.name);
    expect_columns(table.records, results ? records_of({}).columns : table_columns(table.name),
                   (root / (results ? table.name : "tables/" + table.name + ".csv")).string());
    if (!results)
      study.tables[table.name] = std::move(table.records);
    else if (study.results.columns.empty())
      study.results = std::move(table.records);
    else
      append_rows(study.results, std::move(table.records));
  }
  if (study.title.empty()) study.title = "Study of KV cache policies";
  return study;
}

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

PriceList::PriceList(const Records& price) {
  if (price.rows.empty()) return;
  for (const std::vector<Value>& row : price.rows)
    prompt_ =
        std::max(prompt_, static_cast<std::uint64_t>(RowFields(price, row).number("prompt").value_or(0)));
  for (const std::vector<Value>& fields : price.rows) {
    const RowFields row(price, fields);
    prompt_rows_.emplace(row.text("params"), row.text("prompt_rows"));
    const auto peak = row.number("peak_bytes"), cache = row.number("cache_bytes"),
               first = row.number("ttft_seconds"), further = row.number("tpot_seconds"),
               prompt = row.number("prompt");
    if (!peak || !cache || !first || !further || !prompt || *prompt != static_cast<double>(prompt_)) continue;
    model_ = row.text("model");
    machine_ = row.text("machine");
    generate_ = static_cast<std::uint64_t>(row.number("generate").value_or(0));
    const Price found{*peak, *cache, *first, *further, row.text("fits") == "yes"};
    prices_.emplace(std::pair(row.text("params"), row.text("budget")), found);
    if (row.text("policy") == "full") full_ = found;
  }
}

std::string PriceList::prompt_rows(const std::string& params) const {
  const auto found = prompt_rows_.find(params);
  return found == prompt_rows_.end() ? "" : found->second;
}

std::optional<Price> PriceList::at(const std::string& params, const std::string& budget) const {
  for (const std::string& size : {budget, std::string()})  // none: the policy has a size of its own
    if (const auto found = prices_.find({params, size}); found != prices_.end()) return found->second;
  return {};
}

}  // namespace kvsim::analysis
