#pragma once
/// Measures what rankings of a prompt's positions are worth: each drops positions from its lowest on, and the
/// sum of their attention is compared with that of the best order.
///
/// A ranking is static: one score per prompt position, known at the end of the prompt. A policy whose scores
/// change as tokens arrive is measured by its scores at that moment.
#include <cstdint>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/attention/mean_attention.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

struct Ranking {
  enum class By {
    policy,   ///< Eviction::scores of `part`; what it protects at any budget is dropped last
    hash,     ///< farthest key first: mean Hamming distance between its code and those of the queries that
              ///< see it
    recency,  ///< oldest first
  };
  By by = By::policy;
  policy::Part part{};  ///< an eviction that is `scored`
};

struct RankingStudy {
  std::vector<Ranking> rankings{};
  RowMean mean = RowMean::all_rows;
  std::vector<double> dropped{};  ///< shares of the prompt, in [0, 1], at which losses are reported
  std::size_t hash_bits = 16;     ///< in [1, 64]
  std::uint64_t seed = 0;         ///< of projections and of random policies
  unsigned threads = 0;           ///< 0: as many as the machine has. Never changes a result.
};

/// One ranking in one lane.
struct RankingLoss {
  double area = 0;           ///< Y, HashEvict's ALR
  std::vector<double> loss;  ///< L^m at the study's shares, m rounded to a whole number of positions
};

struct LaneRankings {
  double largest_area = 0;         ///< Y of the best order reversed
  std::vector<double> least_loss;  ///< L^m of the best order
  std::vector<RankingLoss> rankings;
};

/// Returns the losses per lane, layer-major. Throws Error(usage) for an empty study, a part that has no
/// scores of the prompt, or a trace that lacks the queries of the prompt or what a part needs; Error(input)
/// when the trace is damaged.
std::vector<LaneRankings> ranking_study(const trace::Sequence& sequence, const RankingStudy& study,
                                        Progress& progress);

}  // namespace kvsim::sim
