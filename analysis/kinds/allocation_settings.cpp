#include "analysis/kinds/allocation_settings.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/replay/allocation_shares.hpp"
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

}  // namespace

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

std::vector<ColumnInfo> allocation_columns() {
  return {
      {"trace", "", "trace file, as given"},
      {"policy", "", "composition in short"},
      {"params", "", "every effective parameter"},
      {"budget", "", "as given"},
      {"layer", "", "layer"},
      {"tokens", "tokens per lane", "what the layer gets, mean over its KV heads"},
      {"share", "", "of the tokens of all layers; undefined: the policy cannot run on the trace"},
  };
}

std::vector<std::vector<Value>> measure_allocation(const Measurement& of) {
  const sim::TableFiles tables(of.sequence);
  const sim::Request request = request_of(of, tables);
  const std::vector<sim::AllocatedTokens> all = sim::allocated_tokens(of.sequence, request, of.progress);
  if (std::all_of(all.begin(), all.end(), [](const auto& given) { return !given.skipped.empty(); }))
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

}  // namespace kvsim::analysis
