#pragma once
/// Computes the attention outputs of a block of queries over the resident positions of one cell: o' = sum
/// over resident j of a(j) v_j, divided by sum over resident j of a(j), beside o = sum over all j of a(j)
/// v_j. Where a sink has a share of the rows, both divisors have it, too.
///
/// The sums run over the resident positions, or over the evicted ones if those are fewer and do not get
/// nearly all of a row's attention, in order of position. Which of the two, and every rounding, depends on
/// the cell alone and not on the cells it is replayed with.
#include <algorithm>
#include <cmath>
#include <cstddef>
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

/// How far one vector is from another: relative error and cosine.
inline double cosine_of(double shared, double of_one, double of_other) {
  if (of_one > 0 && of_other > 0) return shared / std::sqrt(of_one * of_other);
  return of_one > 0 || of_other > 0 ? 0 : 1;
}

struct OutputDistance {
  double error = 0;   ///< |difference| / |whole|; if |whole| is 0: 0 if the difference is 0, else 1
  double cosine = 1;  ///< between whole + difference and whole; if either is 0: 1 if both are, else 0
  // Products of vectors: of the difference and of whole + difference with themselves, of the latter with
  // whole.
  double of_difference = 0, of_other = 0, shared = 0;

  /// Where whole = m evicted + (1 - m) other, with other = whole + difference and m > 0: the cosine of
  /// evicted, which is other - difference / m, to other.
  double evicted_cosine(double m) const {
    const double along = (of_other - shared) / m;  // (difference / m) * other
    const double of_evicted = of_other - 2 * along + of_difference / (m * m);
    return std::clamp(cosine_of(of_other - along, of_evicted, of_other), -1.0, 1.0);
  }
};

inline OutputDistance output_distance(const float* whole, const float* difference, std::size_t n) {
  OutputDistance out;
  double of_whole = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double o = whole[i], d = difference[i], other = o + d;
    out.of_difference += d * d;
    of_whole += o * o;
    out.of_other += other * other;
    out.shared += other * o;
  }
  if (of_whole > 0)
    out.error = std::sqrt(out.of_difference / of_whole);
  else
    out.error = out.of_difference > 0 ? 1 : 0;
  out.cosine = cosine_of(out.shared, of_whole, out.of_other);
  return out;
}

}  // namespace kvsim::sim
