#include "sim/importance.hpp"

#include <algorithm>
#include <functional>

#include "policies/api/pooling.hpp"
#include "sim/attention_rows.hpp"
#include "sim/finite_read.hpp"

namespace kvsim::sim {
std::vector<float> lane_importance(const trace::Sequence& sequence, std::uint32_t layer,
                                   std::uint32_t kv_head, MatrixView keys,
                                   const policy::ImportanceSpec& spec) {
  const std::size_t prompt = sequence.prompt_length();
  if (prompt <= spec.window || sequence.first_query() > prompt - spec.window) return {};
  const trace::Model& model = sequence.model();
  const std::size_t first = prompt - spec.window;
  std::vector<float> q(spec.window * model.head_dim), rows(spec.window * prompt);
  std::vector<double> sums(first, 0.0);
  for (std::uint32_t g = 0; g < model.group(); ++g) {
    read_finite(sequence, trace::Tensor::query, layer, kv_head * model.group() + g, first, spec.window, q);
    attention_rows({model.attn_scale, model.layer_window[layer]},
                   {q.data(), spec.window, model.head_dim, model.head_dim}, first, keys, rows.data(), prompt);
    for (std::size_t i = 0; i < spec.window; ++i)
      for (std::size_t j = 0; j < first; ++j) sums[j] += rows[i * prompt + j];
  }
  for (double& sum : sums) sum /= static_cast<double>(spec.window * model.group());
  const std::vector<double> w = policy::pooled({policy::Pooling::Kind::average, spec.pool}, sums);
  return {w.begin(), w.end()};
}

std::vector<double> largest_sums(std::span<const float> w) {
  std::vector<float> sorted(w.begin(), w.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<double> prefix(w.size() + 1, 0.0);
  for (std::size_t n = 0; n < sorted.size(); ++n) prefix[n + 1] = prefix[n] + sorted[n];
  return prefix;
}

}  // namespace kvsim::sim
