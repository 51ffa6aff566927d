#pragma once
/// Spatial sampling of traces that are larger than memory (Waldspurger, Park, Garthwaite, Ahmad, Efficient
/// MRC construction with SHARDS, FAST 2015): a share of the blocks, chosen by a hash, stands for all of them,
/// in a cache of that share of the capacity. For LRU, whose resident blocks are leading runs in the sample as
/// well; other rules see another tree.
#include <cstdint>

#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

/// The requests with those of their prompt's blocks that are chosen; ids are nodes of `tree`, chained. Blocks
/// that were generated are left out. Throws Error(usage) for a rate that is not above 0 and at most 1.
requests::RequestTrace sampled_blocks(const requests::RequestTrace& trace, const PrefixTree& tree,
                                      double rate, std::uint64_t seed);

/// The share of `blocks` blocks that hit in the whole trace, from how many of the sample missed. Misses are
/// scaled and not hits, since a popular block that the sample has or lacks changes hits alone.
constexpr double hit_share(std::uint64_t sampled_misses, std::uint64_t blocks, double rate) {
  return 1 - static_cast<double>(sampled_misses) / (rate * static_cast<double>(blocks));
}

}  // namespace kvsim::prefix
