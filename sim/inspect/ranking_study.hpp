#pragma once
/// Measures what rankings of a prompt's positions are worth: each drops positions from its lowest on, and the
/// sum of their attention is compared with that of the best order.
///
/// A ranking is static: one score per prompt position, known at the end of the prompt. A policy whose scores
/// change as tokens arrive is measured by its scores at that moment.
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/attention/prompt_attention.hpp"
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

// Computes what it costs to drop positions in a given order: HashEvict's cumulative attention loss, and the
// area that it calls attention loss ratio.

/// Returns the attention of the position that is dropped first, second, and so on, lowest score first.
/// Positions with equal scores are dropped in random order, so each gets the mean of their attention, which
/// is its expectation. `scores` and `attention` have the same length; no score is NaN.
std::vector<double> attention_in_drop_order(std::span<const double> attention,
                                            std::span<const double> scores);

/// Returns the attention in the order that loses least, lowest first. Reversed, it is the order that loses
/// most.
std::vector<double> least_attention_first(std::span<const double> attention);

/// Returns L^m for m = 0 ... dropped.size(): the attention of the first m dropped positions.
std::vector<double> cumulative_loss(std::span<const double> dropped);

/// Returns Y = sum over m of L^m of `dropped` - L^m of `least`, for two orders of one lane: 0 for the least
/// itself, never negative.
double excess_area(std::span<const double> dropped, std::span<const double> least);

}  // namespace kvsim::sim
