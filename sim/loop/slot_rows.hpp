#pragma once
/// Attention of one token's queries over the slots of a cache.
#include <span>
#include <vector>

#include "sim/attention/attention_rows.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

/// Where the key and the value of a slot lie; null: the token's window does not reach back to the slot.
struct SlotRow {
  const float *key = nullptr, *value = nullptr;
  float bias = 0;  ///< added to the logit
};

class SlotRows {
 public:
  /// For each of the `queries` [n, key_dim] of one lane: the softmax of scale * q.k, capped, + bias over the
  /// slots, and the sum of the values by it, into out + i * value_dim. `sinks`: of the queries' heads, which
  /// take their shares of the softmax; empty: there are none. The bits depend on the slots and their order
  /// alone. At least one slot is seen.
  void attend(const AttentionShape& shape, MatrixView queries, std::span<const SlotRow> slots,
              std::size_t value_dim, float* out, std::span<const float> sinks = {});
  /// [n, slots] of the latest call: 0 where a slot is not seen.
  MatrixView weights() const { return {weights_.data(), n_, slots_, slots_}; }
  /// The share of query i's sink in the latest call.
  float sink_weight(std::size_t i) const { return sink_weights_[i]; }

 private:
  std::size_t n_ = 0, slots_ = 0;
  std::vector<float> weights_, sink_weights_, scaled_, row_;
  std::vector<std::size_t> seen_;  // slots, and their rows, where some are not seen
  std::vector<SlotRow> held_;
};

}  // namespace kvsim::sim
