// How far each ranking of positions is from the best one, lane by lane: HashEvict's ALR.
#include <algorithm>

#include "analysis/kinds/ranking_settings.hpp"

namespace kvsim::analysis {
namespace {

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

}  // namespace

Kind ranking_loss_kind() {
  Kind kind;
  kind.name = "ranking-loss";
  kind.summary = "How far rankings of positions are from the best order to drop them in, by lane (ALR)";
  kind.source = "HashEvict, Fig. 8";
  kind.settings = ranking_settings();
  kind.columns = {
      {"trace", "", "trace file, as given"},
      {"ranking", "", "which positions are dropped first"},
      {"layer", "", "layer"},
      {"head", "", "KV head within the layer"},
      {"tokens", "tokens", "prompt positions that are ranked"},
      {"alr", "tokens", "sum over m of the attention that the first m dropped have beyond the m least"},
      {"alr_max", "tokens", "the same for the worst order: most attention first"},
      {"alr_share", "", "alr / alr_max"},
  };
  kind.notes = {
      "alr: area between a ranking's cumulative attention loss and the least possible; it grows with "
      "the prompt.",
      "alr_share: 0 drops least attention first, 1 most; a random order has about half."};
  kind.measure = measure_ranking_loss;
  return kind;
}

}  // namespace kvsim::analysis
