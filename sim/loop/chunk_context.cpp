#include "sim/loop/chunk_context.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/attention/attention_rows.hpp"
#include "sim/base/order.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::sim {
namespace {

using trace::Tensor;

std::vector<ChunkAttention> no_attention(std::span<const Chunk> chunks) {
  std::vector<ChunkAttention> out;
  for (std::size_t i = 0; i < chunks.size(); ++i)
    out.emplace_back(chunks[i].end - chunks[i].begin, std::vector<double>(i + 1));
  return out;
}

/// Adds what the chunks' tokens attend in one layer, over all query heads.
void add_layer(const trace::Source& run, std::span<const Chunk> chunks, std::uint32_t layer,
               std::vector<ChunkAttention>& out) {
  const trace::Model& model = run.header().model;
  const std::uint64_t n = chunks.back().end, dim = model.head_dim;
  std::vector<float> keys(n * dim), queries, weights;
  for (std::uint32_t lane = 0; lane < model.n_kv_heads; ++lane) {
    run.read(Tensor::key, layer, lane, 0, n, keys);
    const KeyPanels panels(MatrixView{keys.data(), n, dim, dim});
    const std::uint32_t group = model.n_q_heads / model.n_kv_heads;
    for (std::uint32_t head = lane * group; head < (lane + 1) * group; ++head)
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const std::uint64_t rows = chunks[i].end - chunks[i].begin;
        queries.resize(rows * dim);
        weights.resize(rows * chunks[i].end);
        run.read(Tensor::query, layer, head, chunks[i].begin, rows, queries);
        attention_rows(attention_shape(model, layer, head), {queries.data(), rows, dim, dim}, chunks[i].begin,
                       panels, weights.data(), chunks[i].end);
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t j = 0; j <= i; ++j) {
            const float* of_row = weights.data() + row * chunks[i].end;
            out[i][row][j] += std::accumulate(of_row + chunks[j].begin, of_row + chunks[j].end, 0.0);
          }
      }
  }
}

/// Of the pairs of numbers, the share that descends; none of fewer than two.
double changed_places(std::span<const std::size_t> numbers) {
  std::size_t changed = 0, pairs = 0;
  for (std::size_t a = 0; a < numbers.size(); ++a)
    for (std::size_t b = a + 1; b < numbers.size(); ++b, ++pairs) changed += numbers[a] > numbers[b] ? 1 : 0;
  return pairs == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(pairs);
}

}  // namespace

std::vector<ChunkAttention> chunk_attention(const trace::Source& run, std::span<const Chunk> chunks,
                                            unsigned threads) {
  const trace::Model& model = run.header().model;
  std::vector<std::vector<ChunkAttention>> layers(model.n_layers, no_attention(chunks));
  Workers(threads).run(model.n_layers, [&](std::size_t layer) {
    add_layer(run, chunks, static_cast<std::uint32_t>(layer), layers[layer]);
  });
  std::vector<ChunkAttention> out = no_attention(chunks);
  const double heads = static_cast<double>(model.n_layers) * model.n_q_heads;
  for (const std::vector<ChunkAttention>& layer : layers)
    for (std::size_t i = 0; i < out.size(); ++i)
      for (std::size_t token = 0; token < out[i].size(); ++token)
        for (std::size_t j = 0; j <= i; ++j) out[i][token][j] += layer[i][token][j] / heads;
  return out;
}

std::vector<std::size_t> recomputed_tokens(const ChunkAttention& attention,
                                           std::span<const std::uint64_t> sizes,
                                           std::span<const std::size_t> before, double alpha) {
  const std::size_t own = sizes.size() - 1, tokens = attention.size();
  if (own == 0) return {};  // nothing stood before it
  std::vector<double> sums(sizes.size()), earlier(tokens);
  for (std::size_t token = 0; token < tokens; ++token)
    for (std::size_t chunk = 0; chunk <= own; ++chunk) {
      sums[chunk] += attention[token][chunk];
      if (chunk < own) earlier[token] += attention[token][chunk];
    }
  const auto n = static_cast<double>(tokens);
  double across = 0, all = 0, common = 0;
  for (std::size_t chunk = 0; chunk < own; ++chunk) {
    across += sums[chunk] / (n * static_cast<double>(sizes[chunk]));
    all += sums[chunk];
  }
  for (const std::size_t chunk : before) common += sums[chunk];
  const double impact = 1 / (1 + std::exp(-across / (sums[own] / (n * n))));
  const double kept = all > 0 ? common / all * (1 - changed_places(before)) : 1;
  const double share = std::min(alpha * impact * (1 - kept), 1.0);
  std::vector<std::size_t> order = largest_first(earlier);
  order.resize(static_cast<std::size_t>(std::ceil(share * n)));
  std::ranges::sort(order);
  return order;
}

void choose_across(std::span<Piece> pieces, double alpha, unsigned threads) {
  if (pieces.empty()) return;
  const std::vector<std::size_t> there =  // pieces in the order of their run
      least_first(pieces.size(), [&](std::size_t i) { return pieces[i].lead; });
  std::vector<Chunk> chunks;
  std::vector<std::uint64_t> sizes;
  for (const std::size_t i : there) {
    sizes.push_back(pieces[i].end - pieces[i].begin);
    chunks.push_back({pieces[i].lead, pieces[i].lead + sizes.back()});
  }
  const std::vector<ChunkAttention> attention = chunk_attention(*pieces.front().alone, chunks, threads);
  for (std::size_t number = 0; number < there.size(); ++number) {
    const std::size_t i = there[number];
    std::vector<std::size_t> before;  // in the prompt, and in the run
    for (std::size_t other = 0; other < i; ++other)
      if (const auto at = static_cast<std::size_t>(std::ranges::find(there, other) - there.begin());
          at < number)
        before.push_back(at);
    for (const std::size_t token :
         recomputed_tokens(attention[number], std::span(sizes).first(number + 1), before, alpha))
      pieces[i].again.push_back(pieces[i].begin + token);
  }
}

}  // namespace kvsim::sim
