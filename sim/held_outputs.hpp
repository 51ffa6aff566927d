#pragma once
/// What a block of queries computes over the positions each of several cells held: sum over held j of a(j)
/// v_j.
///
/// Cells of one family differ in their budget only, so most positions are held by a run of them for the whole
/// block. Positions held by the same cells are summed once, in one GEMM, and the sum is added to each of
/// those cells: the work is that of the largest cell and not of all of them together. Positions that came or
/// went within the block, and those held by rare combinations of cells, are summed per cell, with zeros where
/// they were not held.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/replay.hpp"

namespace kvsim::sim {

/// Rows of consecutive decode steps, the steps repeated for each query head: row r is of step first_step + r
/// % n_steps.
struct AttendedBlock {
  MatrixView attention;  ///< [positions, heads * n_steps]: full rows, transposed
  MatrixView values;     ///< [positions, dim]
  std::uint32_t first_step = 1, n_steps = 1;
};

class HeldOutputs {
 public:
  /// out[cell] becomes [heads * n_steps, dim] row-major. `stays[cell]`: at most one that spans the whole
  /// block per position; stays outside the block must not be among them.
  void compute(const AttendedBlock& block, std::span<const std::span<const Residency>> stays,
               std::vector<std::vector<float>>& out);

 private:
  /// A position and the steps of the block, counted from 0, at which it was held.
  struct Held {
    std::int32_t position;
    std::uint32_t from, to;
  };
  std::uint64_t holders_of(const Held& held) const {
    return holders_[static_cast<std::size_t>(held.position)];
  }
  void sort_positions(const AttendedBlock& block, std::span<const std::span<const Residency>> stays);
  /// sum_ = sum over `held` of a v at the steps it was held.
  void sum_over(const AttendedBlock& block, std::span<const Held> held);

  std::vector<std::uint64_t>
      holders_;               ///< per position, bit c: cell c of the batch held it for the whole block
  std::vector<Held> shared_;  ///< positions with holders, equal holders together
  std::vector<std::vector<Held>> loose_;  ///< per cell, what it does not share
  std::vector<float> rows_, values_, sum_;
};

}  // namespace kvsim::sim
