#pragma once
/// Whether several judges put the same things in the same order: policies on different traces, layers on
/// different prompts. Values are finite; equal ones share the mean of the ranks they take up.
#include <optional>
#include <span>
#include <vector>

namespace kvsim::analysis {

/// 1: the smallest.
std::vector<double> average_ranks(std::span<const double> values);

/// values[judge][thing], as many things for every judge.
using Judgements = std::vector<std::vector<double>>;

/// Kendall's W, corrected for ties (Kendall and Gibbons, Rank Correlation Methods, 1990): from 0, the ranks
/// cancel, to 1, all have the same order. Nothing with fewer than two judges or two things, or when all
/// things are equal to every judge.
std::optional<double> concordance(const Judgements& values);

/// Kendall's tau-b of two judges: pairs of things in the same order - pairs in
/// opposite order, over all pairs corrected for ties; from -1, the order is
/// reversed, to 1, it is the same. Nothing when all things are equal to one of
/// them.
std::optional<double> kendall_tau(std::span<const double> a, std::span<const double> b);

/// Spearman's correlation, Pearson's of the ranks, from -1 to 1: mean over the
/// pairs of judges that have one. A judge to whom all things are equal is in no
/// such pair. Nothing when no pair has.
std::optional<double> mean_rank_correlation(const Judgements& values);

}  // namespace kvsim::analysis
