#pragma once
/// Samples of traces for policies other than LRU: whole subtrees of the tree of prompts, chosen by a hash,
/// with all requests that run through them. What precedes a block in the trace precedes it in the sample, so
/// that leading runs stay whole under any policy. After Waldspurger, Park, Garthwaite, Ahmad, Efficient MRC
/// construction with SHARDS, FAST 2015, whose units are single objects.
#include <cstdint>

#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

struct SubtreeSample {
  requests::RequestTrace trace{};
  /// Blocks that more than `popular` of all requests begin with, e.g. those of a system prompt. They belong
  /// to no subtree and are in every one's requests.
  std::uint64_t trunk = 0;
  double rate = 1;

  /// Of a cache that is to the sample what one of `capacity` blocks is to the trace: the trunk is held once
  /// by either.
  std::uint64_t capacity(std::uint64_t capacity) const;
};

/// The requests whose first block behind the trunk is chosen; of those that end in the trunk, the requests
/// themselves are. Throws Error(usage) for a rate that is not above 0 and at most 1, and for requests that
/// arrive after their parents.
SubtreeSample sampled_subtrees(const requests::RequestTrace& trace, const PrefixTree& tree, double rate,
                               std::uint64_t seed, double popular = 0.01);

}  // namespace kvsim::prefix
