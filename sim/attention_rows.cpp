#include "sim/attention_rows.hpp"

#include <Eigen/Core>
#include <algorithm>

namespace kvsim::sim {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;

Eigen::Map<const RowMajor, 0, Stride> map(MatrixView m) {
  return {m.data, static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.cols),
          Stride(static_cast<Eigen::Index>(m.stride))};
}

}  // namespace

void attention_rows(const AttentionShape& shape, MatrixView q, std::size_t first_query, MatrixView keys, float* out,
                    std::size_t stride) {
  const std::size_t n_keys = first_query + q.rows;
  // Queries before this block's first window see nothing of the keys before `origin`.
  std::size_t origin = 0;
  if (shape.window >= 0 && first_query + 1 > static_cast<std::size_t>(shape.window))
    origin = first_query + 1 - static_cast<std::size_t>(shape.window);
  const MatrixView visible{keys.data + origin * keys.stride, n_keys - origin, keys.cols, keys.stride};
  Eigen::Map<RowMajor, 0, Stride> scores(out + origin, static_cast<Eigen::Index>(q.rows),
                                         static_cast<Eigen::Index>(n_keys - origin),
                                         Stride(static_cast<Eigen::Index>(stride)));
  const RowMajor scaled = map(q) * static_cast<float>(shape.scale);
  scores.noalias() = scaled * map(visible).transpose();

  for (std::size_t i = 0; i < q.rows; ++i) {
    const std::size_t end = first_query + i + 1;
    const std::size_t begin =
        shape.window >= 0 && end > static_cast<std::size_t>(shape.window) ? end - static_cast<std::size_t>(shape.window) : 0;
    float* row = out + i * stride;
    Eigen::Map<Eigen::ArrayXf> seen(row + begin, static_cast<Eigen::Index>(end - begin));
    seen = (seen - seen.maxCoeff()).exp();
    seen *= 1.0F / seen.sum();
    std::fill(row, row + begin, 0.0F);
    std::fill(row + end, row + n_keys, 0.0F);
  }
}

void multiply(MatrixView a, MatrixView b, float* out) {
  Eigen::Map<RowMajor> product(out, static_cast<Eigen::Index>(a.rows), static_cast<Eigen::Index>(b.cols));
  product.noalias() = map(a) * map(b);
}

}  // namespace kvsim::sim
