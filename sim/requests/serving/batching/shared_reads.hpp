#pragma once
/// Hydragen (Juravsky et al. 2024, arXiv 2402.05099): a decode step of sequences with common prefixes reads
/// each common block once, for all of them together, and merges the partial results.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/requests/prefix/prefix_tree.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// Of one layer and step.
struct SharedReads {
  std::uint64_t separate_tokens = 0;  ///< read if every sequence reads its own
  std::uint64_t shared_tokens = 0;    ///< read if common blocks are read once
  /// Partial results that are written and read: one per sequence and level of the tree on its path, where a
  /// level is a run of blocks that the same sequences have. One level alone has the result itself.
  std::uint64_t partials = 0;
  std::uint64_t levels = 0;  ///< on a path, at most

  double ratio() const { return static_cast<double>(separate_tokens) / static_cast<double>(shared_tokens); }
};

/// Counts shared reads of one set of sequences after the other.
class SharedReader {
 public:
  /// Both must outlive the object.
  SharedReader(const requests::RequestTrace& trace, const prefix::PrefixTree& tree)
      : trace_(trace), tree_(tree), readers_(tree.size(), 0) {}

  /// Of sequences that have the whole prompts of `running` and `private_tokens` tokens each behind them,
  /// which nobody shares.
  SharedReads count(std::span<const std::uint32_t> running, std::uint64_t private_tokens);

 private:
  const requests::RequestTrace& trace_;
  const prefix::PrefixTree& tree_;
  std::vector<std::uint32_t> readers_;  ///< of each block; all 0 between two sets
};

}  // namespace kvsim::serving
