#include "sim/loop/slot_rows.hpp"

#include <algorithm>

#include "sim/attention/attention_rows.hpp"

namespace kvsim::sim {

void SlotRows::attend(double scale, MatrixView queries, std::span<const SlotRow> slots, std::size_t value_dim,
                      float* out) {
  n_ = queries.rows;
  slots_ = slots.size();
  weights_.assign(n_ * slots_, 0.0F);
  scaled_.resize(queries.cols);
  seen_.clear();
  for (std::size_t slot = 0; slot < slots_; ++slot)
    if (slots[slot].key != nullptr) seen_.push_back(slot);
  row_.resize(seen_.size());
  for (std::size_t i = 0; i < n_; ++i) {
    const std::span<const float> query = queries.row(i);
    for (std::size_t c = 0; c < queries.cols; ++c) scaled_[c] = query[c] * static_cast<float>(scale);
    for (std::size_t j = 0; j < seen_.size(); ++j)
      row_[j] = dot(scaled_.data(), slots[seen_[j]].key, queries.cols);
    softmax(row_.data(), row_.size());
    float* to = out + i * value_dim;
    std::fill_n(to, value_dim, 0.0F);
    for (std::size_t j = 0; j < seen_.size(); ++j) {
      weights_[i * slots_ + seen_[j]] = row_[j];
      const float* value = slots[seen_[j]].value;
      for (std::size_t c = 0; c < value_dim; ++c) to[c] += row_[j] * value[c];
    }
  }
}

}  // namespace kvsim::sim
