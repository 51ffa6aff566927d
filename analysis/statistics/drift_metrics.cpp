#include "analysis/statistics/drift_metrics.hpp"

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

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
