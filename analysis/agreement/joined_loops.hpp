#pragma once
/// Rows of both loops side by side: what a replay measured of a policy on an item, and what the model
/// answered through that policy's cache.
#include <span>
#include <string>
#include <vector>

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// A column of the rows of `kvsim evaluate` (analysis/README.md).
struct ClosedMeasure {
  const char* key;
  Better better;
};

/// The most telling first: answers, then predictions of the next token.
const std::vector<ClosedMeasure>& closed_measures();
/// Throws Error(usage) with the nearest names.
const ClosedMeasure& closed_measure(std::string_view key);

/// What a replay measures that policies are compared by: those of metrics() with a better direction.
std::vector<const Metric*> open_measures();
/// Throws Error(usage) with the nearest names.
const Metric& open_measure(std::string_view key);

/// Both loops at one cut. A value is the mean over the seeds that both loops have; NaN where undefined.
struct LoopsAtCut {
  struct Item {
    std::string name, workload{};
    double right_full = 0;  ///< whether the full cache answers it, 0 or 1; NaN: not known
  };
  struct Policy {
    std::string label, params;
  };

  std::string cut;
  std::vector<Item> items;  ///< by workload, then name
  std::vector<Policy> policies;
  std::vector<std::string> budgets;  ///< as given, like policies in the order of the answers
  std::vector<const Metric*> open;
  std::vector<const ClosedMeasure*> closed;
  std::vector<double> open_values, closed_values;  ///< [measure][budget][policy][item]
  std::vector<bool> ran;                           ///< [budget][policy][item]: in both loops

  std::size_t cell(std::size_t budget, std::size_t policy) const { return budget * policies.size() + policy; }
  /// One per item.
  std::span<const double> of_open(std::size_t measure, std::size_t budget, std::size_t policy) const {
    return values(open_values, measure, budget, policy);
  }
  std::span<const double> of_closed(std::size_t measure, std::size_t budget, std::size_t policy) const {
    return values(closed_values, measure, budget, policy);
  }

 private:
  std::span<const double> values(const std::vector<double>& all, std::size_t measure, std::size_t budget,
                                 std::size_t policy) const {
    const std::size_t place = measure * budgets.size() * policies.size() + cell(budget, policy);
    return std::span(all).subspan(place * items.size(), items.size());
  }
};

struct JoinedLoops {
  std::vector<LoopsAtCut> cuts;    ///< in the order of the answers
  std::vector<std::string> notes;  ///< what one loop has and the other does not, counted
};

/// Whether a table holds rows of a replay, or of a model that answers.
bool holds_open_rows(const Records& table);
bool holds_closed_rows(const Records& table);

/// Joins tables of rows on item, params, budget, cut and seed. The item of a replay is its trace's file name
/// without `.h5`, as capture and studies name traces of a workload. Rows of the whole model count; policies
/// whose budget is their own, and oracles, are left out: at a budget they are not compared with the others.
/// Throws Error(input) when nothing joins, when a row is there twice, and for answers of several models or
/// protocols (`turns`, `prefill`, `positions`), which rows of a replay do not name; Error(usage) without rows
/// of either loop.
JoinedLoops join_loops(const std::vector<Records>& tables, const std::vector<const Metric*>& open,
                       const std::vector<const ClosedMeasure*>& closed);

}  // namespace kvsim::analysis
