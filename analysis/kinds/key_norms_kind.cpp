// Whether keys of small norm are those that get attention.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/kinds/kind.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/correlation.hpp"
#include "sim/inspect/key_norm_attention.hpp"

namespace kvsim::analysis {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// What a lane's keys say: the columns after layer and head.
std::vector<Value> findings(const sim::KeyNormAttention& keys, std::size_t skip) {
  skip = std::min(skip, keys.norm.size());
  const std::span<const double> norm = std::span(keys.norm).subspan(skip),
                                attention = std::span(keys.attention).subspan(skip);
  if (norm.empty()) return std::vector<Value>(5);
  const double average = mean(norm);
  double squares = 0;
  for (const double x : norm) squares += (x - average) * (x - average);
  const bool sinks = skip > 0 && average > 0;
  return {value_of(pearson(norm, attention)),
          value_of(pearson(average_ranks(norm), average_ranks(attention))), average,
          std::sqrt(squares / static_cast<double>(norm.size())),
          sinks ? Value(mean(std::span(keys.norm).first(skip)) / average) : Value()};
}

std::vector<std::vector<Value>> measure_key_norms(const Measurement& of) {
  const std::uint64_t skip = of.settings.count("skip");
  const trace::Model& model = of.sequence.model();
  const std::uint64_t heads = model.n_kv_heads;
  std::vector<std::vector<Value>> rows(std::size_t{model.n_layers} * heads);
  sim::for_key_norm_attention(of.sequence, of.threads, of.progress,
                              [&](std::size_t lane, const sim::KeyNormAttention& keys) {
                                std::vector<Value>& row = rows[lane];
                                row = {of.trace, lane / heads, lane % heads};
                                for (Value& value : findings(keys, skip)) row.push_back(std::move(value));
                              });
  return rows;
}

}  // namespace

Kind key_norms_kind() {
  return {
      .name = "key-norms",
      .summary = "Whether keys of small norm are those that get attention, by lane",
      .source = "L2 norm (Devoto et al.), as HashEvict compares with it",
      .settings = {{.name = "skip",
                    .fallback = "4",
                    .max = kNoLimit,
                    .help = "First positions to leave out: attention sinks"}},
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"head", "", "KV head within the layer"},
              {"pearson", "", "Pearson's correlation over positions of key norm and mean attention"},
              {"spearman", "", "the same of their ranks"},
              {"norm_mean", "", "mean norm of the keys"},
              {"norm_spread", "", "population standard deviation of the norms"},
              {"sink_norm_ratio", "ratio", "mean norm of the positions left out / norm_mean"},
          },
      .notes = {"Attention of a position: mean over the prompt rows that see it, and over query heads.",
                "A negative correlation says that small keys get attention, as the policy l2_norm supposes."},
      .measure = measure_key_norms};
}

}  // namespace kvsim::analysis
