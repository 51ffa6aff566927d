#pragma once
/// What prefix caches of many policies and capacities hit in a trace whose requests take no time.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/base/workers.hpp"
#include "sim/requests/prefix/block_cache.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

struct Cell {
  policy::Part policy{};
  std::uint64_t capacity = 0;  ///< blocks, from 1
  bool nodes = false;          ///< whole nodes of the radix tree are evicted, and not single blocks
};

struct CellHits {
  std::size_t cell = 0;  ///< index into the cells asked for
  /// Of every request: blocks of its prompt that were resident when it arrived, from the first on without a
  /// gap, and in all.
  std::vector<std::uint32_t> run{}, present{};
  /// Where ReplaySettings::resident: of every block of every prompt, in the order of requests, whether it was
  /// resident when its request arrived.
  std::vector<bool> resident{};
  std::uint64_t stored = 0, evictions = 0;  ///< blocks
  Residency residency{};                    ///< where ReplaySettings::residency
};

struct ReplaySettings {
  std::span<const double> seconds{};  ///< of recomputing a block, by depth, for policies of cost; empty: 1
  bool residency = false;
  bool resident = false;  ///< not of independent blocks
  /// Every block is a request of its own without blocks before it, first block first: as caches of unrelated
  /// objects see a trace. `run` and `present` are then both the number of blocks of a request that hit.
  bool independent = false;
  /// LRU's capacities follow from one pass by stack distances, unless residency is asked for. false: cell by
  /// cell, too.
  bool stack_distances = true;
};

/// Of every block of every final path, in the order of requests: the next request whose prompt contains it,
/// or policy::kNever. Of independent blocks: of every prompt, in numbers of blocks. Throws Error(usage) where
/// these do not suffice.
std::vector<std::uint32_t> next_uses(const PrefixTree& tree, bool independent);

/// The sink is called once per cell, in the order of `cells` and never twice at a time; what it throws ends
/// the replay. Results do not depend on the number of threads. Throws Error(usage) as BlockCache.
void replay(const PrefixTree& tree, const requests::RequestTrace& trace, std::span<const Cell> cells,
            const ReplaySettings& settings, Workers& workers, const std::function<void(CellHits&&)>& sink);

// LRU caches of all capacities in one pass (Mattson and others 1970). A cache of C blocks holds the C most
// recently used ones, so it is enough to know at which place of one stack, ordered by recency, a block is.

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
