#pragma once
/// Reads the queries of a lane group block after block.
#include <cstddef>
#include <span>
#include <vector>

#include "sim/attention/group_tensors.hpp"

namespace kvsim::sim {

/// Blocks are shorter than the chunks of a trace file, and a chunk that is read in part is verified and
/// inflated as a whole. So each head's queries are read up to the end of a chunk, and kept for the blocks
/// that follow.
class QueryReader {
 public:
  /// Of the lanes of `tensors`, which must outlive it.
  explicit QueryReader(const GroupTensors& tensors) : tensors_(&tensors) {}

  /// Reads queries [first, first + n) of a query head of the group into `out`, [n, head_dim].
  void read(std::size_t query_head, std::size_t first, std::size_t n, std::span<float> out);

  /// Returns the bytes that it holds for `heads` query heads of a sequence.
  static std::uint64_t bytes(const trace::Sequence& sequence, std::size_t heads);

 private:
  struct Piece {
    std::size_t first = 0;
    std::vector<float> rows;
  };
  const GroupTensors* tensors_;
  std::vector<Piece> pieces_;  ///< per query head
};

}  // namespace kvsim::sim
