// How well the Hamming distance of SimHash codes tells what a query attends, by code length.
#include "analysis/kinds/kind.hpp"
#include "sim/inspect/hash_correlation.hpp"

namespace kvsim::analysis {
namespace {

sim::HashScope scope_of(const std::string& per) {
  if (per == "layer") return sim::HashScope::layer;
  return per == "head" ? sim::HashScope::head : sim::HashScope::all;
}

std::vector<std::vector<Value>> measure_hash(const Measurement& of) {
  sim::HashStudy study;
  for (const std::uint64_t bits : of.settings.counts("bits")) study.bits.push_back(bits);
  study.projections = of.settings.count("projections");
  study.skip = of.settings.count("skip");
  study.per = scope_of(of.settings.word("per"));
  study.seed = of.settings.count("seed");
  study.threads = of.threads;
  std::vector<std::vector<Value>> rows;
  for (const sim::HashCorrelation& found : sim::hash_correlation(of.sequence, study, of.progress)) {
    const bool both = found.trace.mean && found.noise.mean;
    rows.push_back({of.trace, value_of(found.layer), value_of(found.head), std::uint64_t{found.bits},
                    value_of(found.trace.mean), value_of(found.trace.spread),
                    std::uint64_t{found.trace.defined}, std::uint64_t{found.trace.undefined},
                    value_of(found.noise.mean), value_of(found.noise.spread),
                    both ? Value(*found.trace.mean - *found.noise.mean) : Value()});
  }
  return rows;
}

}  // namespace

Kind hash_kind() {
  return {
      .name = "hash",
      .summary = "How well Hamming distances of SimHash codes tell what a query attends, by code length",
      .source = "HashEvict, Table 11 and Fig. 9",
      .settings =
          {
              {.name = "bits",
               .type = ParamType::counts,
               .fallback = "8,16,24,32,64",
               .min = 1,
               .max = 64,
               .help = "Code lengths"},
              {.name = "projections",
               .fallback = "1",
               .min = 1,
               .max = 1024,
               .help = "Distances are averaged over so many random projections"},
              {.name = "skip",
               .fallback = "0",
               .max = kNoLimit,
               .help = "First positions to leave out: attention sinks"},
              {.name = "per",
               .type = ParamType::choice,
               .fallback = "all",
               .choices = {"all", "layer", "head"},
               .help = "Query heads that a row is about"},
              {.name = "seed", .fallback = "0", .max = kNoLimit, .help = "Of projections and noise"},
          },
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer; undefined for all"},
              {"head", "", "query head within the layer; undefined for all"},
              {"bits", "bits", "code length"},
              {"correlation", "",
               "Pearson's correlation over prompt positions j >= --skip of the attention that the last prompt query "
               "pays to j and 1 - Hamming(h(q), h(k_j)) / bits, mean over the scope's query heads; h is SimHash with "
               "a projection per seed, layer and KV head, averaged over --projections"},
              {"correlation_spread", "", "population standard deviation over query heads"},
              {"heads", "heads", "query heads that have a correlation"},
              {"undefined", "heads", "query heads that have none: one side is the same everywhere"},
              {"correlation_noise", "", "the same for standard normal queries and keys of the same shape"},
              {"correlation_noise_spread", "", "population standard deviation over query heads"},
              {"above_noise", "", "correlation - correlation_noise; only this is a finding"},
          },
      .notes =
          {"Correlation over positions: attention of the last prompt query, and 1 - Hamming distance / bits.",
           "Noise: normal queries and keys of the same shape."},
      .measure = measure_hash};
}

}  // namespace kvsim::analysis
