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

}  // namespace kvsim::prefix
