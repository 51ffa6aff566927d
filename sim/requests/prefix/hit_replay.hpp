#pragma once
/// What prefix caches of many policies and capacities hit in a trace whose requests take no time.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/base/workers.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"
#include "sim/requests/prefix/residency.hpp"

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

}  // namespace kvsim::prefix
