#pragma once
/// The tree of all prompts of a trace: a node is one block behind one particular prefix. Built once, it turns
/// the ids of a trace into small numbers, so that caches of any policy and capacity are arrays and not
/// dictionaries.
#include <cstdint>
#include <span>
#include <vector>

#include "traces/requests/request_trace.hpp"

namespace kvsim::prefix {

/// Nodes are numbered in the order in which they first occur; a parent's number is lower than its children's.
using Node = std::uint32_t;
inline constexpr Node kRoot =
    std::numeric_limits<Node>::max();  ///< the parent of first blocks: it holds no tokens

class PrefixTree {
 public:
  /// Throws Error(usage) for a trace without blocks, Error(input) with the line where an id of a chained
  /// trace stands behind two different prefixes, and for more than 2^32 - 2 nodes.
  explicit PrefixTree(const requests::RequestTrace& trace);

  std::size_t size() const { return parents_.size(); }
  Node parent(Node node) const { return parents_[node]; }
  std::span<const Node> parents() const { return parents_; }
  /// Blocks before the node, 0 for a first block: its tokens begin at depth * block_tokens.
  std::span<const std::uint32_t> depths() const { return depths_; }
  /// The nodes of a prompt from the first block on.
  std::span<const Node> prompt(std::size_t request) const {
    return std::span(path_nodes_).subspan(prompts_[request], prompts_[request + 1] - prompts_[request]);
  }
  /// Those of prompt and generated tokens, as RequestTrace::final_blocks.
  std::span<const Node> final_path(std::size_t request) const;
  std::size_t requests() const { return prompts_.size() - 1; }

 private:
  std::vector<Node> parents_;
  std::vector<std::uint32_t> depths_;
  std::vector<Node> path_nodes_;        ///< of all prompts, one behind the other
  std::vector<std::uint64_t> prompts_;  ///< where each begins; one more than requests
  std::vector<Node> final_nodes_;       ///< of final paths that are not the prompt's
  std::vector<std::uint64_t> finals_;   ///< where each begins; empty when there are none
};

/// Samples of traces for policies other than LRU: whole subtrees of the tree of prompts, chosen by a hash,
/// with all requests that run through them. What precedes a block in the trace precedes it in the sample, so
/// that leading runs stay whole under any policy. After Waldspurger, Park, Garthwaite, Ahmad, Efficient MRC
/// construction with SHARDS, FAST 2015, whose units are single objects.
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
