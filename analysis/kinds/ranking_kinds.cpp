// How far rankings of positions are from the best order to drop them in.
#include <algorithm>

#include "analysis/kinds/kind.hpp"
#include "policies/api/composition.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/inspect/ranking_study.hpp"

namespace kvsim::analysis {
namespace {

/// Rankings as typed, and the study they make. `study.dropped` is left to the kind.
struct AskedRankings {
  std::vector<std::string> names;
  sim::RankingStudy study;
};

sim::Ranking ranking_of(const std::string& text, const policy::Registry& policies) {
  sim::Ranking ranking;
  if (text == "hash") {
    ranking.by = sim::Ranking::By::hash;
  } else if (text == "recency") {
    ranking.by = sim::Ranking::By::recency;
  } else {
    const policy::Composition composition = policy::parse_composition(text, policies);
    ranking.part = composition.eviction;
    if (composition.name.find('+') != std::string::npos)
      usage_error("'" + text + "' has an allocation; a ranking drops whatever its lane's size", "--rankings");
    if (!ranking.part.spec->scored()) {
      std::vector<std::string> scored{"hash", "recency"};
      for (const policy::PolicySpec& spec : policies.policies())
        if (spec.scored()) scored.push_back(spec.name);
      usage_error("'" + text + "' does not rank by a score", "--rankings",
                  "These do: " + joined(scored, ", ") + ".");
    }
  }
  return ranking;
}

/// "rankings", "mean", "bits" and "seed", and those that a kind has of its own.
std::vector<ParamSpec> ranking_settings(std::vector<ParamSpec> own = {}) {
  const ParamSpec shared[] = {
      {.name = "rankings",
       .type = ParamType::texts,
       .fallback = "l2_norm,keydiff,hash,recency,random",
       .help = "hash, recency, or policies that rank by a score, such as snapkv(window=4)"},
      {.name = "mean",
       .type = ParamType::choice,
       .fallback = "all_rows",
       .choices = {"all_rows", "visible"},
       .help = "Attention of a position: mean over all_rows of the prompt, or over those that see it "
               "(visible)"},
      {.name = "bits", .fallback = "16", .min = 1, .max = 64, .help = "Length of the codes of ranking hash"},
      {.name = "seed", .fallback = "0", .max = kNoLimit, .help = "Of ranking hash and of random policies"}};
  own.insert(own.begin(), std::begin(shared), std::end(shared));
  return own;
}

ColumnInfo ranking_column() {
  return {"ranking", "",
          "which positions are dropped first: of a policy those of lowest score at the prompt's end, of hash "
          "those of largest mean Hamming distance, of recency the oldest; equal scores count by expectation"};
}

/// Throws Error(usage) for a ranking asked for twice, and a policy that does not rank by a score.
AskedRankings asked_rankings(const Measurement& of) {
  AskedRankings out;
  out.names = of.settings.texts("rankings");
  for (auto name = out.names.begin(); name != out.names.end(); ++name) {
    if (std::find(out.names.begin(), name, *name) != name)
      usage_error("'" + *name + "' is asked for twice", "--rankings");
    out.study.rankings.push_back(ranking_of(*name, of.policies));
  }
  out.study.mean = of.settings.word("mean") == "visible" ? sim::RowMean::visible : sim::RowMean::all_rows;
  out.study.hash_bits = of.settings.count("bits");
  out.study.seed = of.settings.count("seed");
  out.study.threads = of.threads;
  return out;
}

std::vector<std::vector<Value>> measure_ranking_loss(const Measurement& of) {
  const AskedRankings asked = asked_rankings(of);
  const std::vector<sim::LaneRankings> lanes = sim::ranking_study(of.sequence, asked.study, of.progress);
  const std::uint64_t heads = of.sequence.model().n_kv_heads;
  std::vector<std::vector<Value>> rows;
  for (std::size_t ranking = 0; ranking < asked.names.size(); ++ranking)
    for (std::uint64_t i = 0; i < lanes.size(); ++i) {
      const double area = lanes[i].rankings[ranking].area, most = lanes[i].largest_area;
      rows.push_back({of.trace, asked.names[ranking], i / heads, i % heads, of.sequence.prompt_length(), area,
                      most, most > 0 ? Value(std::min(area / most, 1.0)) : Value()});
    }
  return rows;
}

std::vector<std::vector<Value>> measure_cumulative_loss(const Measurement& of) {
  AskedRankings asked = asked_rankings(of);
  asked.study.dropped = of.settings.shares("dropped");
  const std::vector<sim::LaneRankings> lanes = sim::ranking_study(of.sequence, asked.study, of.progress);
  const trace::Model& model = of.sequence.model();
  std::vector<std::vector<Value>> rows;
  for (std::size_t ranking = 0; ranking < asked.names.size(); ++ranking)
    for (std::uint64_t layer = 0; layer < model.n_layers; ++layer)
      for (std::size_t share = 0; share < asked.study.dropped.size(); ++share) {
        double loss = 0, least = 0;
        for (std::size_t head = 0; head < model.n_kv_heads; ++head) {
          const sim::LaneRankings& lane = lanes[layer * model.n_kv_heads + head];
          loss += lane.rankings[ranking].loss[share] / model.n_kv_heads;
          least += lane.least_loss[share] / model.n_kv_heads;
        }
        rows.push_back({of.trace, asked.names[ranking], layer, asked.study.dropped[share], loss, least});
      }
  return rows;
}

}  // namespace

/// How far each ranking of positions is from the best one, lane by lane: HashEvict's ALR.
Kind ranking_loss_kind() {
  return {
      .name = "ranking-loss",
      .summary = "How far rankings of positions are from the best order to drop them in, by lane (ALR)",
      .source = "HashEvict, Fig. 8",
      .settings = ranking_settings(),
      .columns =
          {
              {"trace", "", "trace file, as given"},
              ranking_column(),
              {"layer", "", "layer"},
              {"head", "", "KV head within the layer"},
              {"tokens", "tokens", "prompt positions that are ranked"},
              {"alr", "tokens",
               "Y = sum over m of L(m) - L_ideal(m), L(m) being the sum of a_j over the first m positions dropped "
               "and a_j the attention on j (--mean)"},
              {"alr_max", "tokens", "the same for the worst order: most attention first"},
              {"alr_share", "", "alr / alr_max"},
          },
      .notes =
          {"alr: area between a ranking's cumulative attention loss and the least possible; it grows with "
           "the prompt.",
           "alr_share: 0 drops least attention first, 1 most; a random order has about half."},
      .measure = measure_ranking_loss};
}

/// What each ranking of positions has lost after dropping a share of them, layer by layer.
Kind cumulative_loss_kind() {
  return {
      .name = "cumulative-loss",
      .summary = "Attention that rankings of positions lose, by the share of positions they drop",
      .source = "HashEvict, Fig. 8 and its definition of cumulative attention loss",
      .settings = ranking_settings({{.name = "dropped",
                                     .type = ParamType::shares,
                                     .fallback = "5%,10%,20%,30%,40%,50%,60%,70%,80%,90%,95%",
                                     .help = "Shares of the prompt's positions that are dropped"}}),
      .columns =
          {
              {"trace", "", "trace file, as given"},
              ranking_column(),
              {"layer", "", "layer"},
              {"dropped", "share", "positions dropped / positions of the prompt"},
              {"loss", "share",
               "mean attention of the dropped positions, summed; mean over the layer's lanes"},
              {"loss_ideal", "share", "the same when those with least attention are dropped first"},
          },
      .notes = {"loss: attention of the prompt's rows on what is dropped; loss_ideal: of the best order."},
      .measure = measure_cumulative_loss};
}

}  // namespace kvsim::analysis
