#include "policies/parts/rows/compactor_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policies/parts/rows/logits.hpp"
#include "policies/parts/rows/norms.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy {

std::vector<double> key_leverages(const Prompt& prompt, RowRange rows, std::size_t sketch,
                                  std::uint64_t seed) {
  const MatrixView keys = prompt.keys(0);
  const std::size_t n = rows.size(), dim = keys.cols, columns = sketch > 0 ? sketch : dim;
  std::vector<float> before;
  for (std::size_t j = rows.first; j < rows.end; ++j)
    before.insert(before.end(), keys.row(j).begin(), keys.row(j).end());
  unrotate(prompt.rotary(), prompt.first() + rows.first, dim, before);
  std::vector<double> mean(dim);
  for (std::size_t i = 0; i < before.size(); ++i)
    mean[i % dim] += static_cast<double>(before[i]) / static_cast<double>(n);
  std::vector<double> directions;
  for (std::uint64_t i = 0; sketch > 0 && i < dim * sketch; ++i)
    directions.push_back(normal(combine({seed, key_of("leverage"), i})) /
                         std::sqrt(static_cast<double>(sketch)));

  std::vector<double> sketched(n * columns);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t c = 0; c < dim; ++c) {
      const double x = static_cast<double>(before[j * dim + c]) - mean[c];
      if (sketch == 0) sketched[j * columns + c] = x;
      for (std::size_t k = 0; k < sketch; ++k) sketched[j * columns + k] += x * directions[c * sketch + k];
    }
  return leverages(sketched, columns, 0.01);
}

std::vector<double> non_causal_attention(const Prompt& prompt, RowRange rows, int group, std::size_t chunk,
                                         double scale, const Pooling& pooling) {
  const MatrixView keys = prompt.keys(0), values = prompt.values(0);
  std::vector<double> out(rows.size()), row;
  for (std::size_t first = rows.first; first < rows.end; first += chunk) {
    row.resize(std::min(chunk, rows.end - first));
    const DotRows products(keys.row(first).data(), keys.stride, row.size(), keys.cols);
    double* const scores = out.data() + (first - rows.first);
    for (int head = 0; head < group; ++head)
      for (std::size_t i = 0; i < row.size(); ++i) {
        products.products(prompt.queries(head).row(first + i).data(), row.size(), row.data());
        for (double& logit : row) logit *= scale;
        softmax(row);
        for (std::size_t j = 0; j < row.size(); ++j) scores[j] += row[j] / group;
      }
  }
  for (std::size_t j = 0; j < out.size(); ++j) out[j] *= euclidean_norm(values.row(rows.first + j));
  return pooled(pooling, out);
}

namespace {

constexpr std::size_t kAtOnce = 4;  ///< rows that are solved for side by side
using Side [[gnu::vector_size(kAtOnce * sizeof(double))]] = double;

/// The lower triangle of X'X + ridge I, [dim, dim].
std::vector<double> moments(std::span<const double> rows, std::size_t dim, double ridge) {
  std::vector<double> out(dim * dim);
  for (std::size_t first = 0; first < rows.size(); first += dim)
    for (std::size_t a = 0; a < dim; ++a)
      for (std::size_t b = 0; b <= a; ++b) out[a * dim + b] += rows[first + a] * rows[first + b];
  for (std::size_t a = 0; a < dim; ++a) out[a * dim + a] += ridge;
  return out;
}

}  // namespace

std::vector<double> leverages(std::span<const double> rows, std::size_t dim, double ridge) {
  const std::vector<double> factor =
      cholesky_factor(moments(rows, dim, ridge), dim, std::numeric_limits<double>::min());
  const std::size_t n = rows.size() / dim;
  std::vector<Side> solved(dim);
  std::vector<double> out(n);
  for (std::size_t first = 0; first < n; first += kAtOnce) {
    const std::size_t there = std::min(kAtOnce, n - first);
    Side squares{};
    for (std::size_t i = 0; i < dim; ++i) {
      Side rest{};
      for (std::size_t r = 0; r < there; ++r) rest[r] = rows[(first + r) * dim + i];
      for (std::size_t k = 0; k < i; ++k) rest -= factor[i * dim + k] * solved[k];
      solved[i] = rest / factor[i * dim + i];
      squares += solved[i] * solved[i];
    }
    for (std::size_t r = 0; r < there; ++r) out[first + r] = squares[r];
  }
  return out;
}

}  // namespace kvsim::policy
