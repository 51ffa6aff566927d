#pragma once
/// Computes the true attention rows of consecutive positions, for every query head of a lane group.
#include <cstddef>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/attention/query_reader.hpp"

namespace kvsim::sim {

/// Returns the number of decode steps whose rows are computed together. It depends on the trace alone,
/// because the rows that a cell is measured against must not depend on which other cells are replayed with
/// it.
std::size_t decode_block(const trace::Sequence& sequence);

class RowBlock {
 public:
  /// Of the lanes of `tensors`, which must outlive it.
  explicit RowBlock(const GroupTensors& tensors) : tensors_(&tensors), reader_(tensors) {}

  /// Computes the rows of the queries at positions first .. first + n - 1 over all keys up to the last of
  /// them. The bits of a row do not depend on its block.
  void compute(std::size_t first, std::size_t n);

  std::size_t first() const { return first_; }
  std::size_t size() const { return n_; }
  /// The row of query head `g` of a lane at position first() + s, over positions 0 .. first() + s; zeros
  /// follow up to width().
  const float* row(std::size_t lane, std::size_t g, std::size_t s) const {
    return rows_.data() + ((lane * group_ + g) * n_ + s) * width();
  }
  std::size_t width() const { return first_ + n_; }
  /// [n_lanes * group, width()]: the rows at position first() + s of all query heads of some lanes.
  MatrixView step(std::size_t first_lane, std::size_t n_lanes, std::size_t s) const {
    return {row(first_lane, 0, s), n_lanes * group_, width(), n_ * width()};
  }
  /// [n_lanes * group, dim]: the queries at position first() + s of all query heads of some lanes.
  MatrixView queries(std::size_t first_lane, std::size_t n_lanes, std::size_t s) const {
    return {query(first_lane, 0, s).data(), n_lanes * group_, dim_, n_ * dim_};
  }
  /// The query of head `g` of a lane at position first() + s.
  std::span<const float> query(std::size_t lane, std::size_t g, std::size_t s) const {
    return {queries_.data() + ((lane * group_ + g) * n_ + s) * dim_, dim_};
  }
  /// [group * n, width()]: a lane's rows, steps within query heads.
  MatrixView lane(std::size_t lane) const { return {row(lane, 0, 0), group_ * n_, width(), width()}; }

 private:
  const GroupTensors* tensors_;
  QueryReader reader_;
  std::size_t first_ = 0, n_ = 0, group_ = 1, dim_ = 0;
  std::vector<float> rows_, queries_;
};

}  // namespace kvsim::sim
