#pragma once
/// Small traces for the trace tests.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/rng.hpp"
#include "traces/format/memory_trace.hpp"

namespace kvsim::test {

inline trace::Model small_model(std::uint32_t layers = 2, std::uint32_t kv_heads = 2, std::uint32_t group = 2,
                                std::uint32_t head_dim = 8, std::uint32_t v_head_dim = 8) {
  trace::Model model;
  model.n_layers = layers;
  model.n_q_heads = kv_heads * group;
  model.n_kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.v_head_dim = v_head_dim;
  return model;
}

inline constexpr trace::Tensor kTensors[] = {trace::Tensor::key, trace::Tensor::value, trace::Tensor::query};

inline std::uint32_t heads_of(const trace::Model& model, trace::Tensor tensor) {
  return tensor == trace::Tensor::query ? model.n_q_heads : model.n_kv_heads;
}

inline std::uint32_t dim_of(const trace::Model& model, trace::Tensor tensor) {
  return tensor == trace::Tensor::value ? model.v_head_dim : model.head_dim;
}

/// Fills rows with numbers that differ by `tensor`, layer, head and index and are exact in `elem`.
inline void number(std::span<float> rows, std::uint64_t tensor, std::uint32_t layer, std::uint32_t head,
                   Elem elem) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto value = static_cast<float>(normal(combine({tensor, layer, head, i})));
    std::uint16_t half = 0;
    if (elem != Elem::f32) {
      narrow(elem, &value, 1, &half);
      widen(elem, &half, 1, &value);
    }
    rows[i] = value;
  }
}

/// A trace whose elements all differ and identify their tensor, layer, head, row and column.
inline trace::MemoryTrace numbered_trace(trace::Header header) {
  trace::MemoryTrace out(std::move(header));
  const trace::Model& model = out.header().model;
  for (const trace::Tensor tensor : kTensors) {
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < heads_of(model, tensor); ++head)
        number(out.rows(tensor, layer, head), static_cast<std::uint64_t>(tensor), layer, head,
               out.header().elem);
  }
  constexpr std::uint64_t kOutput = 3;  // after the three tensors
  for (std::uint32_t layer = 0; out.has_output_weights() && layer < model.n_layers; ++layer)
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head)
      number(out.output_weights(layer, head), kOutput, layer, head, *out.header().output_elem);
  return out;
}

/// A layer's output weights, [n_q_heads, v_head_dim, hidden_size].
inline std::vector<float> all_output_weights(const trace::Source& source, std::uint32_t layer) {
  const trace::Model& model = source.header().model;
  const std::size_t size = std::size_t{model.v_head_dim} * model.hidden_size;
  std::vector<float> out(model.n_q_heads * size);
  for (std::uint32_t head = 0; head < model.n_q_heads; ++head)
    source.read_output_weights(layer, head, std::span(out).subspan(head * size, size));
  return out;
}

/// Column statistics of uniform attention, p(i, j) = 1 / (i + 1), per head and key: [heads, tokens].
struct UniformColumns {
  UniformColumns(std::uint32_t heads, std::uint64_t tokens) {
    for (std::uint32_t head = 0; head < heads; ++head)
      for (std::uint64_t j = 0; j < tokens; ++j) {
        double s = 0, s2 = 0;
        for (std::uint64_t i = j; i < tokens; ++i) {
          const double p = 1 / static_cast<double>(i + 1);
          s += p;
          s2 += p * p;
        }
        sum.push_back(static_cast<float>(s));
        sum_squares.push_back(static_cast<float>(s2));
      }
  }
  std::vector<float> sum, sum_squares;
};

/// Every row of a tensor's head.
inline std::vector<float> all_rows(const trace::Source& source, trace::Tensor tensor, std::uint32_t layer,
                                   std::uint32_t head) {
  const trace::Header& header = source.header();
  const std::uint64_t rows = tensor == trace::Tensor::query ? header.n_query_rows() : header.n_tokens();
  std::vector<float> out(rows * dim_of(header.model, tensor));
  source.read(tensor, layer, head, 0, rows, out);
  return out;
}

}  // namespace kvsim::test
