#pragma once
/// What the kinds that compare rankings of positions have in common.
#include "analysis/kinds/kind.hpp"
#include "sim/inspect/ranking_study.hpp"

namespace kvsim::analysis {

/// "rankings", "mean", "bits" and "seed", to which a kind adds its own.
std::vector<ParamSpec> ranking_settings();

/// Rankings as typed, and the study they make. `study.dropped` is left to the kind.
struct AskedRankings {
  std::vector<std::string> names;
  sim::RankingStudy study;
};
/// Throws Error(usage) for a ranking asked for twice, and a policy that does not rank by a score.
AskedRankings asked_rankings(const Measurement& of);

}  // namespace kvsim::analysis
