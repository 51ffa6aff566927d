#pragma once
/// Prepacking (Zhao et al. 2024, arXiv 2404.09529): prompts of a batch share rows instead of being padded to
/// the longest. A mask keeps them apart, and positions begin anew with each prompt.
#include <cstdint>
#include <span>
#include <vector>

namespace kvsim::serving {

struct Packing {
  std::vector<std::vector<std::uint32_t>> rows{};  ///< prompts of each row, in the order they were put there
  std::uint64_t longest = 0;                       ///< tokens of the longest prompt, and of every row
  std::uint64_t prompts = 0, tokens = 0;           ///< of all prompts

  std::uint64_t padded_tokens() const { return prompts * longest; }
  std::uint64_t packed_tokens() const { return rows.size() * longest; }
};

/// Puts prompts into rows of the longest one's length: in order of falling length, each into the first row
/// with room; of equals the one that comes first goes first. Throws Error(usage) for no prompts, for one of
/// no tokens, and where a product of Packing would not fit 64 bits.
Packing pack(std::span<const std::uint64_t> prompt_tokens);

}  // namespace kvsim::serving
