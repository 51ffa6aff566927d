// Whether a policy splits a budget over layers alike on all prompts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/kinds/allocation_settings.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

/// One policy on all traces.
struct Split {
  Value policy{}, params{}, budget{};
  std::size_t layers = 0;
  Judgements shares{};  ///< [trace][layer], traces it could run on
};

/// Shares of one trace; empty if the policy could not run there.
std::vector<double> shares_from(const Records& all, std::size_t row, std::size_t n_layers) {
  std::vector<double> shares;
  for (std::size_t layer = 0; layer < n_layers; ++layer)
    if (const auto share = number(all.rows[row + layer][all.column("share")])) shares.push_back(*share);
  return shares;
}

/// How many rows from `row` on speak of one policy on one trace: its layers.
std::size_t layers_from(const Records& all, std::size_t row) {
  std::size_t end = row + 1;
  while (end < all.rows.size() && number(all.rows[end][all.column("layer")]) != 0.0) ++end;
  return end - row;
}

std::vector<Split> splits_of(const Records& all) {
  const std::size_t trace = all.column("trace"), params = all.column("params");
  const std::size_t n_layers = all.rows.empty() ? 0 : layers_from(all, 0);
  std::vector<Split> splits;
  for (std::size_t row = 0; row < all.rows.size(); row += n_layers) {
    const std::vector<Value>& first = all.rows[row];
    if (const std::size_t n = layers_from(all, row); n != n_layers)
      usage_error("has " + std::to_string(n) + " layers, '" + text(all.rows[0][trace]) + "' " +
                      std::to_string(n_layers),
                  text(first[trace]), "Allocations are compared over runs of one model.");
    auto split = std::find_if(splits.begin(), splits.end(),
                              [&](const Split& known) { return known.params == first[params]; });
    if (split == splits.end())
      split = splits.insert(
          split, {first[all.column("policy")], first[params], first[all.column("budget")], n_layers});
    std::vector<double> shares = shares_from(all, row, n_layers);
    if (!shares.empty()) split->shares.push_back(std::move(shares));
  }
  return splits;
}

/// Mean, spread, least and most of one layer's shares over traces.
std::vector<Value> over_traces(const Split& split, std::size_t layer) {
  std::vector<double> shares;
  for (const std::vector<double>& trace : split.shares) shares.push_back(trace[layer]);
  if (shares.empty()) return {{}, {}, {}, {}};
  const auto n = static_cast<double>(shares.size());
  const double mean = std::accumulate(shares.begin(), shares.end(), 0.0) / n;
  double squares = 0;
  for (const double share : shares) squares += (share - mean) * (share - mean);
  const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
  return {mean, shares.size() > 1 ? Value(std::sqrt(squares / n)) : Value(), *low, *high};
}

std::vector<ColumnInfo> consistency_columns() {
  return {
      {"policy", "", "composition in short"},
      {"params", "", "every effective parameter"},
      {"budget", "", "as given"},
      {"layer", "", "layer"},
      {"traces", "traces", "on which the policy can run"},
      {"share", "",
       "of the tokens of all layers: mean over traces. Shares, so prompts of any length weigh alike"},
      {"share_spread", "", "population standard deviation over traces; undefined for one"},
      {"share_low", "", "least of any trace"},
      {"share_high", "", "most of any trace"},
      {"rank_correlation", "",
       "Spearman's correlation of two traces' shares over layers, mean over pairs: of the policy, the same "
       "in all its rows"},
      {"concordance", "", "Kendall's W of all traces' shares over layers: of the policy"},
  };
}

Records summarise(const Records& all, const Settings& /*settings*/) {
  Records out{consistency_columns(), {}};
  for (const Split& split : splits_of(all)) {
    const Value correlation = value_of(mean_rank_correlation(split.shares)),
                agreement = value_of(concordance(split.shares));
    for (std::uint64_t layer = 0; layer < split.layers; ++layer) {
      std::vector<Value> row{split.policy, split.params, split.budget, layer,
                             std::uint64_t{split.shares.size()}};
      for (Value& value : over_traces(split, layer)) row.push_back(std::move(value));
      row.push_back(correlation);
      row.push_back(agreement);
      out.rows.push_back(std::move(row));
    }
  }
  return out;
}

}  // namespace

Kind allocation_consistency_kind() {
  Kind kind;
  kind.name = "allocation-consistency";
  kind.summary = "Whether policies split a budget over layers alike on all traces";
  kind.source = "XKV, Fig. 10";
  kind.settings = allocation_settings();
  kind.columns = allocation_columns();
  kind.summary_columns = consistency_columns();
  kind.notes = {"share: of all layers' tokens, mean over traces of any length.",
                "rank_correlation, concordance: 1 where all traces put the layers in one order."};
  kind.measure = measure_allocation;
  kind.summarise = summarise;
  return kind;
}

}  // namespace kvsim::analysis
