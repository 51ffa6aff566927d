#pragma once
/// Codes of vectors: each is stored as the number of the nearest of a few centres.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

struct VectorCode {
  std::size_t dim = 0;
  std::vector<float> centres{};  ///< [size, dim]

  std::size_t size() const { return centres.size() / dim; }
  std::span<const float> centre(std::size_t i) const { return {centres.data() + i * dim, dim}; }
  /// By Euclidean distance; of equals the first.
  std::size_t nearest(std::span<const float> vector) const;
};

/// Centres of the clusters of `points` (k_means.hpp), as 16-bit floats.
VectorCode clustered(const MatrixView& points, std::size_t size, std::uint64_t key, std::size_t most_rounds);

}  // namespace kvsim::policy
