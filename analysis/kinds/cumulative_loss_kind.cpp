// What each ranking of positions has lost after dropping a share of them, layer by layer.
#include "analysis/kinds/ranking_settings.hpp"

namespace kvsim::analysis {
namespace {

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

Kind cumulative_loss_kind() {
  Kind kind;
  kind.name = "cumulative-loss";
  kind.summary = "Attention that rankings of positions lose, by the share of positions they drop";
  kind.source = "HashEvict, Fig. 8 and its definition of cumulative attention loss";
  kind.settings = ranking_settings();
  kind.settings.push_back({.name = "dropped",
                           .type = ParamType::shares,
                           .fallback = "5%,10%,20%,30%,40%,50%,60%,70%,80%,90%,95%",
                           .help = "Shares of the prompt's positions that are dropped"});
  kind.columns = {
      {"trace", "", "trace file, as given"},
      {"ranking", "", "which positions are dropped first"},
      {"layer", "", "layer"},
      {"dropped", "share", "positions dropped / positions of the prompt"},
      {"loss", "share", "mean attention of the dropped positions, summed; mean over the layer's lanes"},
      {"loss_ideal", "share", "the same when those with least attention are dropped first"},
  };
  kind.notes = {"loss: attention of the prompt's rows on what is dropped; loss_ideal: of the best order."};
  kind.measure = measure_cumulative_loss;
  return kind;
}

}  // namespace kvsim::analysis
