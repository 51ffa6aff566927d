#pragma once
/// Spatial sampling of traces that are larger than memory (Waldspurger, Park, Garthwaite, Ahmad, Efficient
/// MRC construction with SHARDS, FAST 2015): a share of the blocks, chosen by a hash, stands for all of them,
/// in a cache of that share of the capacity. For LRU, whose resident blocks are leading runs in the sample as
/// well; other rules see another tree.
#include <cstdint>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

/// The requests with those of their prompt's blocks that are chosen; ids are nodes of `tree`, chained. Blocks
/// that were generated are left out. Throws Error(usage) for a rate that is not above 0 and at most 1.
inline requests::RequestTrace sampled_blocks(const requests::RequestTrace& trace, const PrefixTree& tree,
                                             double rate, std::uint64_t seed) {
  if (!(rate > 0 && rate <= 1))
    usage_error("a sample of blocks has a rate above 0 and at most 1", {}, "Take e.g. 0.01.");
  requests::RequestTrace out = trace;
  out.hashing = requests::Hashing::chained;
  out.generated = requests::Generated::none;
  out.blocks.clear();
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    requests::Request& request = out.requests[r];
    request.first_block = out.blocks.size();
    request.n_final_blocks = 0;
    for (const Node node : tree.prompt(r))
      if (uniform01(combine({seed, node})) < rate) out.blocks.push_back(node);
    request.n_blocks = static_cast<std::uint32_t>(out.blocks.size() - request.first_block);
  }
  return out;
}

/// The share of `blocks` blocks that hit in the whole trace, from how many of the sample missed. Misses are
/// scaled and not hits, since a popular block that the sample has or lacks changes hits alone.
constexpr double hit_share(std::uint64_t sampled_misses, std::uint64_t blocks, double rate) {
  return 1 - static_cast<double>(sampled_misses) / (rate * static_cast<double>(blocks));
}

/// The share of tokens or blocks that hit in the trace, from the sample's. Both shares without a limit of
/// capacity are known, and what the sample is off there it is off at other capacities as well.
constexpr double subtree_hit_share(double sampled, double sampled_ceiling, double ceiling) {
  return sampled_ceiling > 0 ? sampled * ceiling / sampled_ceiling : 0;
}

}  // namespace kvsim::prefix
