#pragma once
/// Tables of statistics by hand, a line per call: policies are called by one letter, which is their params
/// too.
#include <optional>
#include <string>

#include "analysis/report/evidence.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/statistics.hpp"

namespace kvsim::analysis {

struct SmallStudy {
  std::string metric = "attention_loss", cut = "prompt", workload = "all",
              budget = "10%";  ///< of the lines that follow
  std::uint64_t traces = 6;
  Statistics tables = empty_statistics();
  Records results = records_of({});

  static Value optional(std::optional<double> number) { return number ? Value(*number) : Value(); }

  void mean(const std::string& policy, double value, std::optional<double> low = {},
            std::optional<double> high = {}, const std::string& role = "policy", std::uint64_t shortest = 100,
            std::uint64_t longest = 100) {
    tables.means.rows.push_back({metric, cut, workload, budget, policy, policy, role, traces, value,
                                 optional(low), optional(high), shortest, longest});
  }
  void difference(const std::string& policy, const std::string& other, double value,
                  std::optional<double> low, std::optional<double> high, std::uint64_t better,
                  std::uint64_t worse) {
    tables.differences.rows.push_back({metric, cut, workload, budget, policy, policy, other, other, traces,
                                       value, optional(low), optional(high), better, traces - better - worse,
                                       worse});
  }
  void rank(const std::string& policy, double value, std::optional<double> concordance = {},
            std::optional<double> low = {}, std::optional<double> high = {}) {
    tables.ranks.rows.push_back({metric, cut, workload, budget, policy, policy, traces, value, optional(low),
                                 optional(high), value, Value(), optional(concordance)});
  }
  /// A row of the results, scope all; `best_set`: what the best set of the size has, of any metric.
  void result(const std::string& trace, const std::string& policy, double tokens, double best_set,
              std::uint64_t seed = 0, std::optional<double> bound = {}) {
    Row row;
    row.trace = trace;
    row.policy = row.params = policy;
    row.budget = budget;
    row.cut = cut;
    row.budget_tokens = tokens;
    row.set("attention_loss_oracle", best_set);
    row.set("r_oracle", best_set);
    row.set("attention_loss_bound", value_of(bound));
    row.set("r_bound", value_of(bound));
    row.seed = seed;
    results.rows.push_back(records_of({row}).rows.front());
  }
  /// Two policies and what lies between them.
  void duel(const std::string& a, double a_mean, const std::string& b, double b_mean, double low, double high,
            std::uint64_t a_better) {
    mean(a, a_mean, a_mean - 0.01, a_mean + 0.01);
    mean(b, b_mean, b_mean - 0.01, b_mean + 0.01);
    difference(a, b, a_mean - b_mean, low, high, a_better, traces - a_better);
    rank(a, a_mean < b_mean ? 1 : 2);
    rank(b, a_mean < b_mean ? 2 : 1);
  }

  /// At the cut that is set.
  Evidence evidence() const { return Evidence(cut, tables.means, tables.differences, tables.ranks, results); }
};

}  // namespace kvsim::analysis
