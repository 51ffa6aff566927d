#pragma once
/// What the queries of a step pay to the slots of a cache, gathered from full rows.
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

struct SlotAttention {
  MatrixView attention{};          ///< [n_query_heads, slots]; empty without Needs::decode_rows
  std::span<const double> mass{};  ///< [n_query_heads]: sum over the slots
};

/// Gathers without allocating at every step. What it returns is valid until the next call.
class SlotGather {
 public:
  /// `rows`: [n_query_heads, positions], full attention rows of the step. `slots`: position of each slot.
  SlotAttention operator()(MatrixView rows, std::span<const policy::Position> slots);

 private:
  std::vector<float> attention_;
  std::vector<double> mass_;
};

}  // namespace kvsim::sim
