#pragma once
/// Lloyd's k-means: the clustering that KVCrush replaces (arXiv 2503.00022, section IV-C), and that codes of
/// vectors start from.
#include <cstddef>
#include <cstdint>
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

}  // namespace kvsim::policy
