#pragma once
/// Reads the queries of a lane group block after block, and makes attention rows of them.
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
  explicit QueryReader(const GroupTensors& tensors);

  /// Reads queries [first, first + n) of a query head of the group into `out`, [n, head_dim].
  void read(std::size_t query_head, std::size_t first, std::size_t n, std::span<float> out);

  /// Writes the attention rows of a query head at positions [first, first + n), each `stride` floats behind
  /// the one before, and the queries that they were computed from; without a query, the row that the trace
  /// stores, and zeros for the query. Where the trace has neither, the row is of no use. The bits of a row do
  /// not depend on its block.
  void rows(std::size_t query_head, std::size_t first, std::size_t n, std::span<float> queries, float* out,
            std::size_t stride);

  /// Returns the bytes that it holds for `heads` query heads of a sequence.
  static std::uint64_t bytes(const trace::Sequence& sequence, std::size_t heads);

 private:
  struct Piece {
    std::size_t first = 0;
    std::vector<float> rows;
  };
  const GroupTensors* tensors_;
  std::size_t first_row_;      ///< from which on the trace has rows, or queries to compute them
  std::vector<Piece> pieces_;  ///< per query head
};

}  // namespace kvsim::sim
