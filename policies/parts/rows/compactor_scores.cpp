#include "policies/parts/rows/compactor_scores.hpp"

#include <algorithm>
#include <cmath>

#include "policies/parts/rows/leverage.hpp"
#include "policies/parts/rows/logits.hpp"
#include "policies/parts/rows/norms.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/rng.hpp"

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

}  // namespace kvsim::policy
