#pragma once
/// Computes the attention outputs of a block of queries over the resident positions of one cell: o' = sum
/// over resident j of a(j) v_j, divided by sum over resident j of a(j), beside o = sum over all j of a(j)
/// v_j. Where a sink has a share of the rows, both divisors have it, too.
///
/// The sums run over the resident positions, or over the evicted ones if those are fewer and do not get
/// nearly all of a row's attention, in order of position. Which of the two, and every rounding, depends on
/// the cell alone and not on the cells it is replayed with.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/feed/index_store.hpp"

namespace kvsim::sim {

/// The rows of consecutive steps, steps within query heads: row r is of step first_step + r % n_steps.
struct AttendedBlock {
  MatrixView attention;  ///< [positions, heads * n_steps]: full rows, transposed
  MatrixView values;     ///< [positions, dim]
  std::uint32_t first_step = 1, n_steps = 1;
  bool sinks = false;  ///< a sink has what a row does not give to keys
};

class ResidentOutputs {
 public:
  /// Computes the outputs over all positions. Called once per block, before the cells.
  void begin(const AttendedBlock& block);
  /// o, [heads * n_steps, dim] row-major.
  std::span<const float> whole() const { return whole_; }
  /// Sets `out` to o' - o, shaped like whole(); o' is 0 where no resident position is attended. `intervals`
  /// are those that overlap the block, at most one per position.
  void difference(const AttendedBlock& block, std::span<const ResidentInterval> intervals,
                  std::vector<float>& out);
  /// The share of each row, [heads * n_steps], that is paid to evicted positions of the latest difference().
  std::span<const float> evicted() const { return evicted_; }

 private:
  /// The steps of the block, counted from 0, at which a position is resident: [from, to).
  struct Steps {
    std::uint32_t from = 0, to = 0;
  };
  /// Returns whether the evicted positions, which sums_ are of, get nearly all the attention of some row.
  bool little_is_left() const;
  /// Sets sums_ and seen_ to the sums over `positions_` of a(j) v_j and of a(j): at the steps of steps_ if
  /// `held`, else at all others.
  void sum(const AttendedBlock& block, bool held);

  std::vector<float> whole_;  ///< o, divided by mass_
  std::vector<float> mass_;   ///< [heads * n_steps]: the sum of each whole row, 1 up to rounding
  std::vector<float> sink_;   ///< [heads * n_steps]: the share of it that the sink has
  std::vector<float> evicted_;
  std::vector<Steps> steps_;  ///< per position
  std::vector<std::int32_t> positions_;
  std::vector<float> sums_, seen_;              ///< [heads * n_steps, dim] and [heads * n_steps]
  std::vector<float> masked_;                   // scratch: rows of positions that count at some steps
  std::vector<const float*> weights_, values_;  // scratch: of each position
};

}  // namespace kvsim::sim
