#pragma once
/// Which of the tokens that stay is nearest to one that leaves.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Keys of one lane as unit vectors, for many cosines.
class UnitRows {
 public:
  /// `rows`: those of `keys` that are taken. A key of length 0 stays 0: its cosine with every other is 0.
  UnitRows(MatrixView keys, std::span<const std::size_t> rows);

  std::size_t size() const { return dim_ == 0 ? 0 : numbers_.size() / dim_; }
  /// From -1 to 1. Equal keys give equal bits, wherever they stand.
  double cosine(std::size_t row, const UnitRows& other, std::size_t other_row) const;

 private:
  std::size_t dim_;
  std::vector<float> numbers_;
};

inline constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

struct Nearest {
  std::size_t index = 0;  ///< among those that stay; kNowhere: none is near
  double cosine = 0;
};

/// Per row of `leaving`, the row of `staying` with the largest cosine; of equal ones the first. `staying` has
/// at least one row.
std::vector<Nearest> nearest_by_cosine(const UnitRows& leaving, const UnitRows& staying);

/// The same with the largest product of the cosines of keys and of values, among those whose keys have a
/// positive cosine; kNowhere where there is none. `cosine` is that product.
std::vector<Nearest> nearest_by_product(const UnitRows& leaving_keys, const UnitRows& staying_keys,
                                        const UnitRows& leaving_values, const UnitRows& staying_values);

/// Per position that leaves, the index of the position that stays with the least distance; of two the
/// earlier. `staying` has at least one, in any order.
std::vector<std::size_t> nearest_by_position(std::span<const Position> leaving,
                                             std::span<const Position> staying);

/// The same among positions of the same run, kNowhere where its run has none that stays. `run_of`: per
/// position, in ascending order.
std::vector<std::size_t> nearest_in_run(std::span<const Position> leaving, std::span<const Position> staying,
                                        std::span<const std::size_t> run_of);

/// Per row of `keys`, the number of its run: a row is in the run of the one before it if their cosine is
/// above `above`.
std::vector<std::size_t> runs_of(MatrixView keys, double above);

}  // namespace kvsim::policy
