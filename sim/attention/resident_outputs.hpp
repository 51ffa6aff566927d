#pragma once
/// What a block of queries computes over the positions one cell held: o' = sum over held j of a(j) v_j,
/// divided by sum over held j of a(j), beside o = sum over all j of a(j) v_j.
///
/// The sums run over what the cell held, or over what it had dropped if that is less (in positions, and not
/// nearly all of a row's attention), in order of position: which of the two, and every rounding, depends on
/// the cell alone and not on the cells it is replayed with.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/feed/index_store.hpp"

namespace kvsim::sim {

/// Rows of consecutive steps, the steps repeated for each query head: row r is of step first_step + r %
/// n_steps.
struct AttendedBlock {
  MatrixView attention;  ///< [positions, heads * n_steps]: full rows, transposed
  MatrixView values;     ///< [positions, dim]
  std::uint32_t first_step = 1, n_steps = 1;
};

class ResidentOutputs {
 public:
  /// The block's own outputs; once before the cells.
  void begin(const AttendedBlock& block);
  /// [heads * n_steps, dim] row-major: o.
  std::span<const float> whole() const { return whole_; }
  /// `out` becomes o' - o, shaped alike; o' is 0 where the cell held nothing that is attended. `intervals`:
  /// those that reach into the block, at most one per position.
  void difference(const AttendedBlock& block, std::span<const ResidentInterval> intervals,
                  std::vector<float>& out);

 private:
  /// Steps of the block, counted from 0, at which a position was held: [from, to).
  struct Steps {
    std::uint32_t from = 0, to = 0;
  };
  /// sums_ are of what was dropped, and in some row that is nearly everything.
  bool little_is_left(std::size_t dim) const;
  /// sums_ = sums over `positions_` of a (v, 1), at the steps of steps_ or at all others.
  void sum(const AttendedBlock& block, bool held);

  std::vector<float> whole_;  ///< divided by its mass
  std::vector<float> mass_;   ///< [heads * n_steps], of whole rows: 1 up to rounding
  std::vector<Steps> steps_;  ///< per position
  std::vector<std::int32_t> positions_;
  std::vector<float> rows_, values_, sums_;
};

}  // namespace kvsim::sim
