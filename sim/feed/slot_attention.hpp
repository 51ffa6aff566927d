#pragma once
/// The attention that the queries of a step pay to the slots of a cache, gathered from full attention rows.
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/feed/selected_reads.hpp"

namespace kvsim::sim {

struct SlotAttention {
  MatrixView attention{};          ///< [n_query_heads, slots]; empty without Needs::decode_rows
  std::span<const double> mass{};  ///< [n_query_heads]: sum over the slots, and the sink's share
};

/// Gathers the attention on a cache's slots into buffers that it reuses. The result is valid until the next
/// call.
class SlotGather {
 public:
  /// `rows`: [n_query_heads, positions], the full attention rows of the step. `slots`: the position in each
  /// slot. `sinks`: a sink has what a row does not give to positions.
  SlotAttention operator()(MatrixView rows, std::span<const policy::Position> slots, bool sinks);
  /// The same of queries that read a part: the attention on slots that a head does not read is 0.
  SlotAttention operator()(MatrixView rows, std::span<const policy::Position> slots,
                           const SelectedReads& reads, bool sinks);

 private:
  void add_sinks(MatrixView rows);

  std::vector<float> attention_;
  std::vector<double> mass_;
};

}  // namespace kvsim::sim
