#include "sim/attention/attention_rows.hpp"

#include <Eigen/Core>
#include <cmath>

#include "sim/base/cap_logits.hpp"

namespace kvsim::sim {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;

// The softmax runs in packets of fixed size from the first element of the row on, so that a row does not
// depend on where it lies in memory. Eigen's own loops over a whole row start with single elements until the
// address is aligned, and its exp and sum differ in the last bit between single elements and packets.
constexpr std::size_t kPacket = 16;
using Packet = Eigen::Array<float, kPacket, 1>;

Eigen::Map<const RowMajor, 0, Stride> map(MatrixView m) {
  return {m.data, static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.cols),
          Stride(static_cast<Eigen::Index>(m.stride))};
}

}  // namespace

AttentionShape attention_shape(const trace::Model& model, std::uint32_t layer, std::size_t query_head) {
  return {model.attn_scale, model.layer_window[layer], model.logit_softcap, model.sink(layer, query_head),
          model.chunked};
}

double sink_share(std::span<const float> row) {
  double sum = 0;
  for (const float a : row) sum += static_cast<double>(a);
  return std::max(0.0, 1 - sum);
}

float softmax(float* row, std::size_t n, float sink) {
  Packet most = Packet::Constant(row[0]);
  std::size_t i = 0;
  for (; i + kPacket <= n; i += kPacket) most = most.max(Eigen::Map<const Packet>(row + i));
  for (; i < n; ++i) most[0] = std::max(most[0], row[i]);
  const float largest = std::max(most.maxCoeff(), sink);
  Packet sums = Packet::Zero();
  i = 0;
  for (; i + kPacket <= n; i += kPacket) {
    const Packet e = (Eigen::Map<const Packet>(row + i) - largest).exp();
    Eigen::Map<Packet>(row + i) = e;
    sums += e;
  }
  if (i < n) {
    const auto rest = static_cast<Eigen::Index>(n - i);
    Packet tail = Packet::Zero();
    for (Eigen::Index j = 0; j < rest; ++j) tail[j] = row[i + static_cast<std::size_t>(j)] - largest;
    tail = tail.exp();
    for (Eigen::Index j = 0; j < rest; ++j) {
      row[i + static_cast<std::size_t>(j)] = tail[j];
      sums[j] += tail[j];
    }
  }
  const float of_sink = std::exp(sink - largest);
  float sum = of_sink;
  for (std::size_t j = 0; j < kPacket; ++j) sum += sums[static_cast<Eigen::Index>(j)];
  const float factor = 1.0F / sum;
  for (std::size_t j = 0; j < n; ++j) row[j] *= factor;
  return of_sink * factor;
}

void attention_rows(const AttentionShape& shape, MatrixView q, std::size_t first_query, const KeyPanels& keys,
                    float* out, std::size_t stride) {
  const std::size_t n_keys = first_query + q.rows;
  // No query of the block sees a key before `origin`.
  const std::size_t origin = shape.first_seen(first_query);
  keys.products(q, static_cast<float>(shape.scale), origin, n_keys, out, stride);

  for (std::size_t i = 0; i < q.rows; ++i) {
    const std::size_t end = first_query + i + 1;
    const std::size_t begin = shape.first_seen(end - 1);
    float* row = out + i * stride;
    cap_logits(row + begin, end - begin, shape.cap);
    softmax(row + begin, end - begin, shape.sink);
    std::fill(row, row + begin, 0.0F);
    std::fill(row + end, row + n_keys, 0.0F);
  }
}

void multiply(MatrixView a, MatrixView b, float* out) {
  Eigen::Map<RowMajor> product(out, static_cast<Eigen::Index>(a.rows), static_cast<Eigen::Index>(b.cols));
  product.noalias() = map(a) * map(b);
}

void transpose(MatrixView a, float* out) {
  // Tiles keep both sides in the CPU cache.
  constexpr std::size_t kTile = 16;
  for (std::size_t i0 = 0; i0 < a.rows; i0 += kTile)
    for (std::size_t j0 = 0; j0 < a.cols; j0 += kTile)
      for (std::size_t j = j0; j < std::min(j0 + kTile, a.cols); ++j)
        for (std::size_t i = i0; i < std::min(i0 + kTile, a.rows); ++i) out[j * a.rows + i] = a(i, j);
}

}  // namespace kvsim::sim
