#pragma once
/// The recorded rows of one step of a lane, which all its cells are compared with. What follows from a row is
/// computed once for all cells, when the first one asks.
#include <span>
#include <vector>

#include "sim/attention/row_block.hpp"
#include "sim/attention/step_oracle.hpp"

namespace kvsim::sim {

/// The largest entries of a row; of equal ones the first.
class TopEntries {
 public:
  /// The numbers of the min(size, kTopTokens) largest entries, in no order. Valid until the next call.
  std::span<const std::size_t> of(std::span<const float> row);

 private:
  std::vector<float> heap_;
  std::vector<std::size_t> top_;
};

class RecordedStep {
 public:
  RecordedStep(const GroupTensors& tensors, std::size_t lane) : tensors_(&tensors), lane_(lane) {}
  void set(const RowBlock& rows, std::size_t step_of_block);

  std::size_t position() const { return seen_ - 1; }
  std::size_t seen() const { return seen_; }
  std::size_t group() const { return heads_.size(); }
  std::span<const float> row(std::size_t g) const { return {rows_->row(lane_, g, step_), seen_}; }
  std::span<const float> query(std::size_t g) const { return rows_->query(lane_, g, step_); }
  /// The logit of a position over the recorded key, through the kernel of StoredAttention.
  float logit(std::size_t g, std::size_t position) const;
  /// The positions of the kTopTokens largest entries of the row, or of all of them, ascending.
  std::span<const policy::Position> top(std::size_t g) const;
  /// The sum of the row.
  double total(std::size_t g) const;
  /// The n largest entries of the row, 1 <= n <= seen().
  const LargestEntries& largest(std::size_t g, std::size_t n) const;

 private:
  struct Counted {
    std::size_t n = 0;
    LargestEntries entries{};
  };
  struct Head {
    std::vector<float> scaled{},
        logits{};  ///< [dim]: scale * query; [seen], not a number where none has asked
    std::vector<policy::Position> top{};
    double total = 0;  ///< 0: not yet known
    std::vector<Counted> largest{};
  };

  const GroupTensors* tensors_;
  std::size_t lane_;
  const RowBlock* rows_ = nullptr;
  std::size_t step_ = 0, seen_ = 0;
  mutable std::vector<Head> heads_;
  mutable std::vector<float> scratch_;
};

}  // namespace kvsim::sim
