#pragma once
/// BatchLLM (Zheng et al. 2024, arXiv 2412.03594): a batch that is known in advance is cut into groups of
/// requests with one common prefix each, which is computed once and freed when the group ends.
#include <cstdint>
#include <vector>

#include "sim/requests/prefix/prefix_tree.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

struct PrefixGroup {
  std::uint64_t prefix_tokens = 0;  ///< that all its requests begin with; 0: they share nothing
  std::vector<std::uint32_t> requests{};
  std::uint64_t computed_tokens = 0;  ///< of prompts: the prefix once, and what follows it
  std::uint64_t generated_tokens = 0;
};

struct PrefixGroups {
  /// The group that generates most for what it computes comes first, so that its steps have room for later
  /// prompts; of equals the one with the earlier request.
  std::vector<PrefixGroup> groups{};
  std::uint64_t prompt_tokens = 0;
  std::uint64_t saved_tokens = 0;  ///< prompt_tokens less what is computed
  /// What would be saved if every block of the tree were computed once, on all levels.
  std::uint64_t tree_saving = 0;
  /// What is saved if requests are grouped by the run of blocks with which they begin alone, up to where the
  /// first of them parts.
  std::uint64_t first_level_saving = 0;
};

/// Finds the groups that save most: for every node of the tree whether it is a group's prefix, given the
/// nearest prefix above it. The paper's text says only that sharing is cut to one level so that most tokens
/// are saved; this is that maximum.
PrefixGroups prefix_groups(const requests::RequestTrace& trace, const prefix::PrefixTree& tree);

}  // namespace kvsim::serving
