#pragma once
/// What a trace of requests is like, and what of its prompts a cache without limits would have held.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/spread.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

/// Prompt tokens of the requests it speaks of, and those that earlier requests had left behind: of each
/// prompt the leading run of blocks that were there already.
struct Ceiling {
  std::uint64_t tokens = 0;
  std::uint64_t hit_tokens = 0;    ///< a last block that is not whole counts with the tokens it has
  std::uint64_t whole_tokens = 0;  ///< of whole blocks alone, as engines share them
};

/// How prompts share their blocks.
struct Sharing {
  std::uint64_t blocks = 0;     ///< of all prompts
  std::uint64_t distinct = 0;   ///< nodes of the tree that prompts have
  std::uint64_t seen_once = 0;  ///< of these
  std::uint64_t roots = 0;      ///< different first blocks
  std::uint64_t branching = 0;  ///< nodes with two children or more
  std::uint64_t widest = 0;     ///< children that a node has at most
  std::uint64_t deepest = 0;    ///< blocks of the longest prompt
  double top_share = 0;         ///< of the reuses (occurrences but the first): those of the 1 % of distinct
                                ///< blocks, rounded down, that are reused most
  Ceiling all{}, last_half{};   ///< last_half: of the requests from number n / 2 on
  /// Prompt tokens of blocks that earlier requests had, but not in such a run: what a cache that is keyed by
  /// piece finds behind other prefixes. None where an id names its whole prefix.
  std::optional<std::uint64_t> elsewhere_tokens{};
};

struct RequestSummary {
  std::uint64_t requests = 0, prompt_tokens = 0, generated_tokens = 0;
  double end_s = 0;  ///< when the last request arrives that does not wait for a parent
  Spread prompt{}, generated{};
  Spread gap_s{};             ///< between arrivals that wait for no parent
  double gap_cv = 0;          ///< their standard deviation over their mean: 1 of a Poisson process
  std::uint64_t waiting = 0;  ///< requests that arrive after their parent
  std::uint64_t sessions = 0, later_turns = 0;  ///< later_turns: requests with a parent in the trace
  std::vector<std::pair<std::string, std::uint64_t>> categories{};  ///< and how many requests are of each
  std::optional<Sharing> sharing{};                                 ///< unset: the trace has no blocks
};

/// Throws as PrefixTree does.
RequestSummary summarize(const requests::RequestTrace& trace);

}  // namespace kvsim::prefix
