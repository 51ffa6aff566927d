#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/kinds/kind.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/spread.hpp"
#include "sim/inspect/head_attention.hpp"

namespace kvsim::analysis {
namespace {

std::vector<std::vector<Value>> measure_heads(const Measurement& of) {
  sim::HeadStudy study;
  study.rows = of.settings.count("rows");
  study.sinks = of.settings.count("sinks");
  study.local = of.settings.count("local");
  study.threads = of.threads;
  const sim::HeadsFound found = sim::head_attention(of.sequence, study, of.progress);
  const std::uint64_t heads = of.sequence.model().n_q_heads;
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t i = 0; i < found.heads.size(); ++i) {
    const sim::HeadAttention& head = found.heads[i];
    rows.push_back({of.trace, i / heads, i % heads, found.rows, head.sink, head.local, head.entropy,
                    value_of(head.entropy_share), head.distance, head.largest});
  }
  return rows;
}

}  // namespace

Kind heads_kind() {
  return {
      .name = "heads",
      .summary = "Where each query head looks: sinks, locality, entropy",
      .source = "attention maps of XKV, HashEvict and StreamingLLM",
      .settings =
          {
              {.name = "rows",
               .fallback = "64",
               .max = kNoLimit,
               .help = "Last prompt rows to look at; rows of generated tokens come besides"},
              {.name = "sinks", .fallback = "4", .max = kNoLimit, .help = "First positions of the sequence"},
              {.name = "local",
               .fallback = "32",
               .max = kNoLimit,
               .help = "Last positions, up to the row's own"},
          },
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"head", "", "query head within the layer"},
              {"rows", "rows", "attention rows that the means are over"},
              {"sink", "share", "attention on the first positions"},
              {"local", "share", "attention on the last positions"},
              {"entropy", "bits", "entropy of the attention"},
              {"entropy_share", "share", "entropy / log2(positions the row sees)"},
              {"distance", "tokens", "mean distance to what is attended"},
              {"largest", "share", "largest attention on one position"},
          },
      .notes = {"Means over rows: the last of the prompt, and those of generated tokens."},
      .measure = measure_heads};
}

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
