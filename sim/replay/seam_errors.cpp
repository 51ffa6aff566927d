#include "sim/replay/seam_errors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/attention/attention_rows.hpp"
#include "sim/base/workers.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::sim {
namespace {

using trace::Tensor;

/// |x' - x| / |x| of numbers that come in parts.
struct Distance {
  double difference = 0, norm = 0;
  void add(std::span<const float> other, std::span<const float> own) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      const double y = static_cast<double>(own[i]), x = static_cast<double>(other[i]) - y;
      difference += x * x;
      norm += y * y;
    }
  }
  double relative() const { return norm > 0 ? std::sqrt(difference / norm) : difference > 0 ? 1 : 0; }
};

/// One token in one layer.
struct TokenError {
  Distance key, value, output;
  double attention = 0;
};

std::vector<float> rows_of(const trace::MemoryTrace& trace, Tensor tensor, std::uint32_t layer,
                           std::uint32_t head) {
  const std::size_t dim = trace::schema::tensor_dim(trace.header().model, tensor);
  std::vector<float> out(trace.header().n_tokens() * dim);
  trace.read(tensor, layer, head, 0, trace.header().n_tokens(), out);
  return out;
}

/// Of the tokens of some pieces in one layer, in their order.
std::vector<TokenError> layer_errors(const trace::MemoryTrace& assembled, const trace::MemoryTrace& whole,
                                     std::span<const Piece> pieces, std::uint32_t layer) {
  constexpr std::uint64_t kRows = 64;
  const trace::Model& model = whole.header().model;
  const std::size_t dim = model.head_dim, value_dim = model.v_head_dim;
  const std::uint32_t group = model.n_q_heads / model.n_kv_heads;
  std::vector<TokenError> out;
  for (const Piece& piece : pieces) out.resize(out.size() + piece.end - piece.begin);
  std::vector<float> weights, outputs;
  for (std::uint32_t lane = 0; lane < model.n_kv_heads; ++lane) {
    const std::vector<float> keys[] = {rows_of(assembled, Tensor::key, layer, lane),
                                       rows_of(whole, Tensor::key, layer, lane)};
    const std::vector<float> values[] = {rows_of(assembled, Tensor::value, layer, lane),
                                         rows_of(whole, Tensor::value, layer, lane)};
    const KeyPanels panels[] = {KeyPanels({keys[0].data(), keys[0].size() / dim, dim, dim}),
                                KeyPanels({keys[1].data(), keys[1].size() / dim, dim, dim})};
    for (std::uint32_t head = lane * group; head < (lane + 1) * group; ++head) {
      const std::vector<float> queries = rows_of(whole, Tensor::query, layer, head);
      TokenError* error = out.data();
      for (const Piece& piece : pieces)
        for (std::uint64_t first = piece.begin; first < piece.end; first += kRows) {
          const std::uint64_t n = std::min(kRows, piece.end - first), seen = first + n;
          weights.resize(2 * n * seen);
          outputs.resize(2 * n * value_dim);
          for (const std::size_t side : {0U, 1U}) {
            float* of_side = weights.data() + side * n * seen;
            attention_rows(attention_shape(model, layer, head), {queries.data() + first * dim, n, dim, dim},
                           first, panels[side], of_side, seen);
            multiply({of_side, n, seen, seen}, {values[side].data(), seen, value_dim, value_dim},
                     outputs.data() + side * n * value_dim);
          }
          for (std::uint64_t row = 0; row < n; ++row, ++error) {
            const auto part = [](std::span<const float> of, std::uint64_t at, std::size_t width) {
              return of.subspan(at * width, width);
            };
            if (head == lane * group) {
              error->key.add(part(keys[0], first + row, dim), part(keys[1], first + row, dim));
              error->value.add(part(values[0], first + row, value_dim),
                               part(values[1], first + row, value_dim));
            }
            error->output.add(part(outputs, row, value_dim), part(outputs, n + row, value_dim));
            double moved = 0;
            for (std::uint64_t key = 0; key < seen; ++key)
              moved += std::abs(static_cast<double>(weights[row * seen + key]) -
                                static_cast<double>(weights[(n + row) * seen + key]));
            error->attention += moved / 2 / model.n_q_heads;
          }
        }
    }
  }
  return out;
}

}  // namespace

std::vector<SeamError> seam_errors(const trace::MemoryTrace& assembled, const trace::MemoryTrace& whole,
                                   std::span<const Piece> pieces, unsigned threads) {
  std::vector<Piece> behind_seams;
  std::ranges::copy_if(pieces, std::back_inserter(behind_seams),
                       [](const Piece& piece) { return piece.begin > 0; });
  const std::uint32_t layers = whole.header().model.n_layers;
  std::vector<std::vector<SeamError>> of_layer(layers);
  Workers(threads).run(layers, [&](std::size_t number) {
    const auto layer = static_cast<std::uint32_t>(number);
    std::vector<SeamError> sums;
    const std::vector<TokenError> errors = layer_errors(assembled, whole, behind_seams, layer);
    auto error = errors.begin();
    for (const Piece& piece : behind_seams)
      for (std::uint64_t distance = 0; distance < piece.end - piece.begin; ++distance, ++error) {
        const auto place = static_cast<std::size_t>(std::bit_width(distance));
        if (sums.size() <= place) sums.resize(place + 1);
        SeamError& sum = sums[place];
        ++sum.tokens;
        sum.key += error->key.relative();
        sum.value += error->value.relative();
        sum.attention += error->attention;
        sum.output += error->output.relative();
      }
    for (std::size_t place = 0; place < sums.size(); ++place) {
      SeamError& mean = sums[place];
      mean.layer = layer;
      mean.from = place == 0 ? 0 : std::uint64_t{1} << (place - 1);
      mean.to = std::uint64_t{1} << place;
      for (double* one : {&mean.key, &mean.value, &mean.attention, &mean.output})
        *one /= static_cast<double>(mean.tokens);
    }
    of_layer[number] = std::move(sums);
  });
  std::vector<SeamError> out;
  for (const std::vector<SeamError>& layer : of_layer) out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

}  // namespace kvsim::sim
