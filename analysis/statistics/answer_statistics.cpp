#include "analysis/statistics/answer_statistics.hpp"

#include <set>

#include "analysis/results/policy_labels.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

/// What two rows share that differ in their mode alone.
constexpr const char* kCell[] = {"item", "params", "budget", "cut", "seed"};

/// What figures of bytes show beside a metric.
constexpr const char* kBytes[] = {"held_bytes", "read_bytes", "index_bytes"};

}  // namespace

const std::vector<Metric>& answer_metrics() {
  static const std::vector<Metric> all = {
      {.key = "right",
       .unit = "share",
       .meaning = "of the items, those answered right by the workload's own rule, generated greedily",
       .label = "accuracy",
       .better = Better::higher,
       .percent = true},
      {.key = "kept",
       .unit = "share",
       .meaning = "of the items that the full cache answers right, those answered right",
       .label = "accuracy kept",
       .better = Better::higher,
       .percent = true},
      {.key = "kl",
       .unit = "nats",
       .meaning = "KL(full || cell) of the next token, mean over the tokens of the answer",
       .label = "KL divergence from the full cache",
       .better = Better::lower},
      {.key = "same_top",
       .unit = "share",
       .meaning = "tokens at which cell and full cache find the same token most probable",
       .label = "same most probable token",
       .better = Better::higher,
       .percent = true},
  };
  return all;
}

const Metric& answer_metric(std::string_view key) {
  for (const Metric& metric : answer_metrics())
    if (key == metric.key) return metric;
  bug("no such number of the closed loop", key);
}

std::string assumed_role(const std::string& params) {
  return role_name(false, params.starts_with("full("));
}

Records comparable_answers(const Records& answers, const std::map<std::string, std::string>& roles,
                           double least_full) {
  Records out;
  for (const char* key :
       {"trace", "workload", "policy", "params", "role", "budget", "budget_tokens", "cut", "scope", "seed"})
    out.columns.push_back({key, "", ""});
  for (const Metric& metric : answer_metrics()) out.columns.push_back(info_of(metric));
  for (const char* bytes : kBytes) out.columns.push_back({bytes, "bytes", ""});
  if (answers.rows.empty()) return out;
  const std::vector<FullAnswers> full = full_answers(answers);
  const auto field = [&](const std::vector<Value>& row, const char* key) { return row[answers.column(key)]; };
  std::map<std::vector<std::string>, std::size_t> places;
  for (const std::vector<Value>& row : answers.rows) {
    std::vector<std::string> cell;
    for (const char* key : kCell) cell.push_back(exact_field(field(row, key)));
    const auto [place, fresh] = places.try_emplace(cell, out.rows.size());
    if (fresh) {
      const std::string params = exact_field(field(row, "params"));
      const auto role = roles.find(params);
      out.rows.push_back({field(row, "item"), field(row, "workload"), field(row, "policy"), params,
                          role == roles.end() ? assumed_role(params) : role->second, field(row, "budget"),
                          field(row, "budget_tokens"), field(row, "cut"), std::string("all"),
                          field(row, "seed")});
      out.rows.back().resize(out.columns.size());
    }
    for (const char* bytes : kBytes)
      if (has_column(answers, bytes)) out.rows[place->second][out.column(bytes)] = field(row, bytes);
    const bool unranked =
        !may_rank(full, exact_field(field(row, "workload")), exact_field(field(row, "cut")), least_full);
    for (const Metric& metric : answer_metrics()) {
      if (!has_column(answers, metric.key)) continue;  // rows of older versions have no `kept`
      const Value value = field(row, metric.key);
      const bool undefined = std::holds_alternative<std::monostate>(value);
      if (undefined || (unranked && std::string_view(metric.key) == "right")) continue;
      out.rows[place->second][out.column(metric.key)] = value;
    }
  }
  return out;
}

Records ranked_answers(const Records& answers, const Records& means, std::string_view by) {
  Records out{answers.columns, {}};
  if (answers.rows.empty() || means.rows.empty()) return out;
  std::map<std::string, std::set<std::string>> ranked;  // by cut; "all" alone: there is one workload
  const std::size_t metric = means.column("metric"), group = means.column("workload"),
                    at = means.column("cut");
  for (const std::vector<Value>& row : means.rows)
    if (exact_field(row[metric]) == by) ranked[exact_field(row[at])].insert(exact_field(row[group]));
  const std::size_t workload = answers.column("workload"), cut = answers.column("cut");
  for (const std::vector<Value>& row : answers.rows) {
    const auto found = ranked.find(exact_field(row[cut]));
    if (found == ranked.end()) continue;
    if (found->second.size() == 1 || found->second.contains(exact_field(row[workload])))
      out.rows.push_back(row);
  }
  return out;
}

const std::vector<Metric>& drift_metrics() {
  static const std::vector<Metric> all = {
      {.key = "residual_l2",
       .unit = "share",
       .meaning = "|h' - h| / |h| of the residual stream after the layer, mean over tokens",
       .label = "drift of the residual stream",
       .better = Better::lower,
       .percent = true},
      {.key = "residual_cosine",
       .unit = "",
       .meaning = "cosine of h' and h, mean over tokens",
       .label = "cosine of the two residual streams",
       .better = Better::higher},
      {.key = "query_l2",
       .unit = "share",
       .meaning = "|q' - q| / |q| of the layer's queries, mean over tokens",
       .label = "drift of the queries",
       .better = Better::lower,
       .percent = true},
  };
  return all;
}

const std::vector<Metric>& token_metrics() {
  static const std::vector<Metric> all = {
      {.key = "kl",
       .unit = "nats",
       .meaning = "KL(full || cell) of the token's prediction",
       .label = "KL divergence from the full cache",
       .better = Better::lower},
      {.key = "rank",
       .unit = "tokens",
       .meaning = "tokens that the cell finds more probable than the one fed",
       .label = "more probable tokens",
       .better = Better::lower},
      {.key = "same_top",
       .unit = "share",
       .meaning = "whether cell and full cache find the same token most probable",
       .label = "same most probable token",
       .better = Better::higher,
       .percent = true},
  };
  return all;
}

namespace {

const Metric& named(const std::vector<Metric>& all, std::string_view key, const char* what) {
  std::vector<std::string> known;
  for (const Metric& metric : all) {
    if (key == metric.key) return metric;
    known.emplace_back(metric.key);
  }
  usage_error(std::string("unknown measure of ") + what + " '" + std::string(key) + "'", "--metric",
              suggestion(key, known));
}

std::vector<ColumnInfo> columns_of(const char* part, const char* meaning,
                                   const std::vector<Metric>& metrics) {
  std::vector<ColumnInfo> out;
  for (const char* key : {"item", "workload", "policy", "params", "budget", "budget_tokens", "cut"})
    out.push_back({key, "", ""});
  out.push_back({part, "index", meaning});
  for (const Metric& metric : metrics) out.push_back(info_of(metric));
  return out;
}

}  // namespace

const Metric& drift_metric(std::string_view key) {
  return named(drift_metrics(), key, "drift");
}

const Metric& token_metric(std::string_view key) {
  return named(token_metrics(), key, "tokens");
}

std::vector<ColumnInfo> drift_columns() {
  return columns_of("layer", "layer of the model, from 0", drift_metrics());
}

std::vector<ColumnInfo> token_part_columns() {
  return columns_of("index", "token of the answer, from 0", token_metrics());
}

bool holds_drift_rows(const Records& table) {
  return has_column(table, "item") && has_column(table, "layer") &&
         has_column(table, drift_metrics().front().key);
}

bool holds_token_rows(const Records& table) {
  return has_column(table, "item") && has_column(table, "index") && has_column(table, "log_p_full");
}

}  // namespace kvsim::analysis
