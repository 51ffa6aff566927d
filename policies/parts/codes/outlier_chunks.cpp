#include "policies/parts/codes/outlier_chunks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/base/order.hpp"

namespace kvsim::policy {
namespace {

/// The least cosine of the vectors and their mean; least of all if one is not finite.
double worst_cosine(const std::vector<std::span<const float>>& vectors) {
  const std::size_t dim = vectors[0].size();
  std::vector<double> mean(dim);
  for (const auto& vector : vectors)
    for (std::size_t c = 0; c < dim; ++c)
      mean[c] += static_cast<double>(vector[c]) / static_cast<double>(vectors.size());
  const double of_mean = std::sqrt(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0));
  double worst = 1;
  for (const auto& vector : vectors) {
    double product = 0, squares = 0;
    for (std::size_t c = 0; c < dim; ++c) {
      const auto x = static_cast<double>(vector[c]);
      product += x * mean[c];
      squares += x * x;
    }
    if (!std::isfinite(squares)) return -std::numeric_limits<double>::infinity();
    const double sizes = of_mean * std::sqrt(squares);
    worst = std::min(worst, sizes > 0 ? product / sizes : 0);
  }
  return worst;
}

}  // namespace

std::vector<char> outlier_chunks(std::size_t chunks, std::size_t size, std::size_t count,
                                 const std::function<std::span<const float>(std::size_t)>& key) {
  std::vector<double> cosines;
  std::vector<std::span<const float>> keys(size);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::size_t i = 0; i < size; ++i) keys[i] = key(chunk * size + i);
    cosines.push_back(worst_cosine(keys));
  }
  const std::vector<std::size_t> order = least_first(cosines);
  std::vector<char> out(chunks);
  for (std::size_t n = 0; n < count; ++n) out[order[n]] = 1;
  return out;
}

}  // namespace kvsim::policy
