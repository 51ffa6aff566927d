#pragma once
/// Lloyd's k-means: the clustering that KVCrush replaces (arXiv 2503.00022, section IV-C), and that codes of
/// vectors start from.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

struct KMeans {
  /// Per cluster, the member nearest to its centre (of equals the first); ascending, distinct.
  std::vector<std::uint32_t> representatives{};
  std::vector<float> centres{};  ///< [k, dim]
  std::size_t rounds = 0;        ///< each compares every point with every centre
};

/// The most rounds; there are fewer once no point changes its cluster.
inline constexpr std::size_t kMostRounds = 25;

/// Which points are the first centres.
enum class KMeansStart {
  drawn,      ///< k of them without replacement, each as likely
  plus_plus,  ///< one after the other, as likely as its squared distance from the nearest before it
              ///< (k-means++, Arthur and Vassilvitskii 2007)
};

/// `points`: [n, dim]; 1 <= k <= n; most_rounds >= 1. Starts with points drawn by `key`. Equal distances go
/// to the lower cluster. An empty cluster takes the point farthest from its centre among those whose cluster
/// has other members, so there are always k clusters.
KMeans k_means(const MatrixView& points, std::size_t k, std::uint64_t key,
               std::size_t most_rounds = kMostRounds, KMeansStart start = KMeansStart::drawn);

/// Codes of vectors: each is stored as the number of the nearest of a few centres.
struct VectorCode {
  std::size_t dim = 0;
  std::vector<float> centres{};  ///< [size, dim]

  std::size_t size() const { return centres.size() / dim; }
  std::span<const float> centre(std::size_t i) const { return {centres.data() + i * dim, dim}; }
  /// By Euclidean distance; of equals the first.
  std::size_t nearest(std::span<const float> vector) const;
};

/// Centres of the clusters of `points`, as 16-bit floats.
VectorCode clustered(const MatrixView& points, std::size_t size, std::uint64_t key, std::size_t most_rounds);

// Picks a few items that stand for many.

/// Which `count` of a sorted list of n are picked:
/// - random: one at random out of each of `count` contiguous groups [floor(i n / count), floor((i+1) n /
///   count))
/// - first: the first of each of those groups
/// - ends: places floor(i (n - 1) / (count - 1)), so both ends are picked
/// - stride: places i floor(n / count), so a remainder at the far end is never picked
enum class Pick { random, first, ends, stride };

/// Returns `count` <= sorted.size() of them, in the list's order. `key`: for the random draws, one per group.
std::vector<std::uint32_t> picked(std::span<const std::uint32_t> sorted, std::size_t count, Pick pick,
                                  std::uint64_t key = 0);

}  // namespace kvsim::policy
