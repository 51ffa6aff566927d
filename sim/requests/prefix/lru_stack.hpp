#pragma once
/// LRU caches of all capacities in one pass (Mattson and others 1970). A cache of C blocks holds the C most
/// recently used ones, so it is enough to know at which place of one stack, ordered by recency, a block is.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

/// A request puts its path on the stack as a whole, the first block on top. What later requests leave of it
/// is a stretch of the path that begins further behind and is still contiguous in the stack, so a request is
/// a few stretches and not many blocks; a Fenwick tree over requests adds up how many blocks those on top of
/// a stretch have. A block never lies above the one before it: all resident blocks of a path are a leading
/// run.
class LruStack {
 public:
  LruStack(const PrefixTree& tree);

  /// Blocks of one path, [begin, end), that lie next to each other in the stack, the first at place `place`,
  /// 0 being the top.
  struct Stretch {
    std::size_t begin = 0, end = 0;
    std::uint64_t place = 0;
  };
  /// The known blocks of the path from the first on; those behind them were never used.
  const std::vector<Stretch>& find(std::span<const Node> path);
  /// Puts the path on top. Requests are numbered from 0 upwards.
  void touch(std::span<const Node> path, std::uint32_t request);
  std::uint64_t size() const { return size_; }

  /// How many blocks of the stretches lie above place `capacity`.
  static std::size_t within(std::span<const Stretch> stretches, std::uint64_t capacity);

 private:
  std::uint64_t above(std::uint32_t request) const;  ///< blocks whose last use was later than this request
  void add(std::uint32_t request, std::int64_t blocks);

  std::vector<std::uint32_t> last_;  ///< of every node, the last request that used it
  std::vector<std::uint32_t>
      begins_;                      ///< of every request, the depth at which what is left of its path begins
  std::vector<std::int64_t> sums_;  ///< Fenwick tree: how many blocks are left of each
  std::vector<Stretch> stretches_;
  std::uint64_t size_ = 0;
};

}  // namespace kvsim::prefix
