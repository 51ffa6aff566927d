// How policies split a budget over layers: trace by trace, and whether alike on all of them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/kinds/kind.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/table_files.hpp"

namespace kvsim::analysis {
namespace {

sim::Request request_of(const Measurement& of, const sim::TableFiles& tables) {
  sim::Request request;
  const sim::Budget budget = sim::parse_budget(of.settings.word("budget"));
  for (const std::string& text : of.settings.texts("policies")) {
    sim::Cell cell{policy::parse_composition(text, of.policies), budget};
    for (const sim::Cell& other : request.cells)
      if (other.composition.params == cell.composition.params)
        usage_error("'" + text + "' is listed twice", "--policies");
    request.cells.push_back(std::move(cell));
  }
  request.seed = of.settings.count("seed");
  request.threads = of.threads;
  request.tables = &tables;
  return request;
}

/// Mean tokens per lane of each layer.
std::vector<double> tokens_by_layer(const sim::AllocatedTokens& given) {
  std::vector<double> layers;
  for (const std::vector<std::size_t>& lanes : given.tokens)
    layers.push_back(static_cast<double>(std::accumulate(lanes.begin(), lanes.end(), std::size_t{0})) /
                     static_cast<double>(lanes.size()));
  return layers;
}

std::vector<ParamSpec> allocation_settings() {
  return {{.name = "policies",
           .type = ParamType::texts,
           .fallback = "snapkv,pyramidkv,cake.layers,xkv",
           .help = "Policies and presets (kvsim policy list)"},
          {.name = "budget",
           .type = ParamType::text,
           .fallback = "10%",
           .help = "Tokens per lane (128), share of the prompt (25%), bytes (64MiB)",
           .form = "BUDGET"},
          {.name = "seed", .fallback = "0", .max = kNoLimit, .help = "Of random policies"}};
}

/// trace, policy, params, budget, layer, tokens, share.
std::vector<ColumnInfo> allocation_columns() {
  return {
      {"trace", "", "trace file, as given"},
      {"policy", "", "composition in short"},
      {"params", "", "every effective parameter"},
      {"budget", "", "as given"},
      {"layer", "", "layer"},
      {"tokens", "tokens per lane", "what the layer gets, mean over its KV heads"},
      {"share", "",
       "of the tokens of all layers, with what every lane always keeps (kvsim allocate writes shares above "
       "that); undefined: the policy cannot run on the trace"},
  };
}

/// Rows of these columns, policies in the order given, layers ascending. `tokens` and `share` are undefined
/// for a policy that cannot run on the trace. Throws Error(usage) with the reason when none can.
std::vector<std::vector<Value>> measure_allocation(const Measurement& of) {
  const sim::TableFiles tables(of.sequence);
  const sim::Request request = request_of(of, tables);
  const std::vector<sim::AllocatedTokens> all = sim::allocated_tokens(of.sequence, request, of.progress);
  if (std::ranges::all_of(all, [](const auto& given) { return !given.skipped.empty(); }))
    usage_error(all[0].skipped, of.sequence.source().name());
  std::vector<std::vector<Value>> rows;
  for (std::size_t cell = 0; cell < all.size(); ++cell) {
    const policy::Composition& policy = request.cells[cell].composition;
    const std::vector<double> layers = tokens_by_layer(all[cell]);
    const double sum = std::accumulate(layers.begin(), layers.end(), 0.0);
    for (std::uint64_t layer = 0; layer < of.sequence.model().n_layers; ++layer) {
      std::vector<Value> row{of.trace, policy.name, policy.params, request.cells[cell].budget.text, layer,
                             {},       {}};
      if (!layers.empty()) {
        row[5] = layers[layer];
        row[6] = layers[layer] / sum;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

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
    auto split =
        std::ranges::find_if(splits, [&](const Split& known) { return known.params == first[params]; });
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
  const auto [low, high] = std::ranges::minmax_element(shares);
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

/// How policies split a budget over layers, trace by trace.
Kind allocation_kind() {
  return {.name = "allocation",
          .summary = "How policies split a budget over layers",
          .source = "XKV, Fig. 10",
          .settings = allocation_settings(),
          .columns = allocation_columns(),
          .notes = {"tokens: per lane, mean over the layer's KV heads. share: of all layers' tokens."},
          .measure = measure_allocation};
}

/// Whether a policy splits a budget over layers alike on all prompts.
Kind allocation_consistency_kind() {
  return {.name = "allocation-consistency",
          .summary = "Whether policies split a budget over layers alike on all traces",
          .source = "XKV, Fig. 10",
          .settings = allocation_settings(),
          .columns = allocation_columns(),
          .notes = {"share: of all layers' tokens, mean over traces of any length.",
                    "rank_correlation, concordance: 1 where all traces put the layers in one order."},
          .measure = measure_allocation,
          .summary_columns = consistency_columns(),
          .summarise = summarise};
}

}  // namespace kvsim::analysis
