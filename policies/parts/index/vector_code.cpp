#include "policies/parts/index/vector_code.hpp"

#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/index/k_means.hpp"

namespace kvsim::policy {

std::size_t VectorCode::nearest(std::span<const float> vector) const {
  std::size_t best = 0;
  float least = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const float* at = centres.data() + i * dim;
    float distance = 0;
    for (std::size_t c = 0; c < dim; ++c) distance += (vector[c] - at[c]) * (vector[c] - at[c]);
    if (i > 0 && distance >= least) continue;
    best = i;
    least = distance;
  }
  return best;
}

VectorCode clustered(const MatrixView& points, std::size_t size, std::uint64_t key, std::size_t most_rounds) {
  VectorCode out{points.cols, k_means(points, size, key, most_rounds).centres};
  for (float& x : out.centres) x = nearest_half(x);
  return out;
}

}  // namespace kvsim::policy
