#include "traces/model/cpu/step_batch.hpp"

#include <algorithm>

#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/linear_layer.hpp"

namespace kvsim::model::cpu {
namespace {

/// The rotation of every row.
RopeTable table_of(std::span<const StepBatch::Row> rows, std::span<const float> frequencies, double factor) {
  RopeTable out;
  for (const StepBatch::Row& row : rows) {
    const RopeTable one = rope_table(frequencies, factor, row.position, 1);
    out.pairs = one.pairs;
    out.cosine.insert(out.cosine.end(), one.cosine.begin(), one.cosine.end());
    out.sine.insert(out.sine.end(), one.sine.begin(), one.sine.end());
  }
  return out;
}

/// Leaves of `n` equally long rows the `kept` ones.
void keep_rows(std::span<const std::size_t> kept, std::size_t n, std::vector<float>& rows) {
  const std::size_t width = rows.size() / n;
  for (std::size_t i = 0; i < kept.size(); ++i)
    std::copy_n(rows.data() + kept[i] * width, width, rows.data() + i * width);
  rows.resize(kept.size() * width);
}

}  // namespace

StepBatch::StepBatch(const ModelConfig& config, const Weights& weights, Elem elem, std::uint64_t positions,
                     Workers& workers)
    : config_(config),
      weights_(weights),
      elem_(elem),
      workers_(workers),
      frequencies_(rope_frequencies(config.rope, positions)),
      other_frequencies_(config.other_rope ? rope_frequencies(*config.other_rope, positions)
                                           : std::vector<float>()) {}

void StepBatch::forward(std::span<const Row> rows, const Attend& attend, const LayerOutput& output,
                        const Narrow& narrow) {
  n_ = rows.size();
  const std::uint64_t width = config_.hidden_size;
  const auto eps = static_cast<float>(config_.norm_eps);
  RopeTable most = table_of(rows, frequencies_, config_.rope.attention_factor);
  RopeTable other;
  if (config_.other_rope) other = table_of(rows, other_frequencies_, config_.other_rope->attention_factor);
  std::vector<float> temperatures;
  for (const Row& row : rows)
    if (config_.temperature_floor != 0) temperatures.push_back(query_temperature(config_, row.position));
  hidden_.resize(n_ * width);
  normed_.resize(n_ * width);
  for (std::size_t row = 0; row < n_; ++row)
    embed_token(config_, weights_, rows[row].token, rows[row].position, hidden_.data() + row * width);
  for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& w = weights_.layers[layer];
    const RopeTable& rope = config_.rotates_apart(layer) ? other : most;
    enter_halves(workers_, config_, w, hidden_, n_, normed_, entered_);
    const auto project = [&](const Linear& linear, const HeadTransform& transform, std::vector<float>& out) {
      projected_.resize(n_ * linear.out);
      apply_linear_alike(workers_, linear, normed_.data(), n_, projected_.data());
      out.resize(projected_.size());
      split_heads(workers_, transform, projected_.data(), n_, out.data());
    };
    const LayerHeads heads(config_, w, rope, elem_,
                           config_.rotates(layer) ? std::span<const float>() : temperatures);
    if (w.latent) {
      latent_heads(workers_, config_, *w.latent, true, heads, normed_.data(), n_, projected_, q_, k_, v_);
    } else {
      project(w.q, heads.queries, q_);
      project(w.k, heads.keys, k_);
      project(w.v, {config_.n_kv_heads, config_.head_dim, {}, eps, nullptr, elem_}, v_);
    }
    attended_.resize(n_ * config_.n_heads * config_.value_dim());
    attend(layer, {q_, k_, v_, n_, config_.head_dim, config_.value_dim()}, attended_);
    if (narrow) {
      const std::span<const std::size_t> kept = narrow(layer);
      std::vector<float>* all[] = {&hidden_,      &attended_,  &most.cosine, &most.sine,
                                   &other.cosine, &other.sine, &temperatures};
      for (std::vector<float>* of : all) keep_rows(kept, n_, *of);
      if (config_.parallel) keep_rows(kept, n_, entered_);
      n_ = kept.size();
    }
    if (w.latent) {
      latent_outputs(workers_, config_, *w.latent, true, attended_, config_.value_dim(), n_, projected_);
      attended_.swap(projected_);
    }
    normed_.resize(n_ * width);
    apply_linear_alike(workers_, w.o, attended_.data(), n_, normed_.data());
    leave_half(workers_, config_, w.attention_out_norm, normed_, n_, hidden_);

    if (config_.parallel)
      normed_.swap(entered_);
    else
      enter_half(workers_, config_, w.mlp_norm, hidden_, n_, normed_);
    feed_forward(workers_, config_, w, true, n_, normed_, space_);
    leave_half(workers_, config_, w.mlp_out_norm, normed_, n_, hidden_);
    if (output) output(layer, hidden_);
  }
}

std::vector<float> StepBatch::logits(std::span<const std::size_t> rows) {
  const std::size_t width = config_.hidden_size;
  std::vector<float> hidden(rows.size() * width), out(rows.size() * config_.vocab_size);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(hidden_.data() + rows[i] * width, width, hidden.data() + i * width);
  apply_norm(workers_, config_, hidden.data(), rows.size(), weights_.norm, normed_.data());
  apply_linear_alike(workers_, weights_.head, normed_.data(), rows.size(), out.data());
  finish_logits(config_, out);
  return out;
}

}  // namespace kvsim::model::cpu
