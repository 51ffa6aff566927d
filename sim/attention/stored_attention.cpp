#include "sim/attention/stored_attention.hpp"

#include <algorithm>

#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"

namespace kvsim::sim {

void StoredAttention::attend(const policy::CacheRows& rows, std::size_t lane, std::span<const float> query,
                             const Sight& sight, std::span<float> weights, float* out) {
  const std::size_t slots = rows.slots(), dim = query.size(), value_dim = rows.shape().value_dim;
  const MatrixView keys = rows.keys(lane), values = rows.values(lane);
  const std::span<const float> biases = rows.biases(lane);
  const std::span<const policy::Position> positions = rows.positions();
  scaled_.resize(dim);
  for (std::size_t c = 0; c < dim; ++c) scaled_[c] = query[c] * static_cast<float>(sight.scale);
  logits_.resize(weights.size());
  seen_.clear();
  const auto see = [&](std::size_t slot) {
    if (slot < slots && positions[slot] < sight.first) return;
    logits_[slot] = dot(scaled_.data(), slot < slots ? keys.row(slot).data() : sight.own_key.data(), dim);
    cap_logits(&logits_[slot], 1, sight.cap);
    if (slot < slots) logits_[slot] += biases[slot];
    seen_.push_back(slot);
  };
  if (sight.read.empty())
    for (std::size_t column = 0; column < weights.size(); ++column) see(column);
  else
    for (const std::size_t column : sight.read) see(column);
  const bool rest = rows.has_rest(lane);
  seen_logits_.resize(seen_.size() + (rest ? 1 : 0));
  for (std::size_t j = 0; j < seen_.size(); ++j) seen_logits_[j] = logits_[seen_[j]];
  if (rest) {
    seen_logits_.back() = dot(scaled_.data(), rows.rest_key(lane).data(), dim);
    cap_logits(&seen_logits_.back(), 1, sight.cap);
    seen_logits_.back() += rows.rest_bias(lane);
  }
  sink_weight_ = softmax(seen_logits_.data(), seen_logits_.size(), sight.sink);
  std::ranges::fill(weights, 0.0F);
  std::fill_n(out, value_dim, 0.0F);
  for (std::size_t j = 0; j < seen_.size(); ++j) {
    const float weight = weights[seen_[j]] = seen_logits_[j];
    const float* value = seen_[j] < slots ? values.row(seen_[j]).data() : sight.own_value.data();
    for (std::size_t c = 0; c < value_dim; ++c) out[c] += weight * value[c];
  }
  rest_weight_ = rest ? seen_logits_.back() : 0;
  if (rest)
    for (std::size_t c = 0; c < value_dim; ++c) out[c] += rest_weight_ * rows.rest_value(lane)[c];
}

}  // namespace kvsim::sim
