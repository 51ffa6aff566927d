#pragma once
/// Chooses which positions of a scored prompt a budget keeps.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Which of two equal scores is dropped first. Positions and slots are distinct, so every order is total.
/// `slot` drops the lower slot, as an argmin over the cache does (in a prompt: the older position).
enum class Tie { oldest, newest, slot };

/// Blocks of `granularity` positions of the text, as far as they lie in the rows of a prompt.
struct PromptBlocks {
  std::size_t length = 0, granularity = 1;
  std::size_t first = 0;  ///< position of row 0, which may lie within a block

  std::size_t count() const { return length == 0 ? 0 : of(length - 1) + 1; }
  std::size_t of(std::size_t row) const { return (first % granularity + row) / granularity; }
  std::size_t begin(std::size_t block) const {
    return block == 0 ? 0 : block * granularity - first % granularity;
  }
  std::size_t end(std::size_t block) const { return std::min(begin(block + 1), length); }
  std::size_t size(std::size_t block) const { return end(block) - begin(block); }
};

/// A prompt cut into blocks, ordered by the mean score of each block, best first. A block with a protected
/// token is protected.
class BlockOrder {
 public:
  BlockOrder() = default;
  /// `scores`: one per row of the prompt, higher is kept, no NaN. `first`: Prompt::first().
  BlockOrder(std::span<const double> scores, std::size_t granularity, Tie tie, std::size_t first = 0);

  /// Returns the protected blocks and then the best others, until one does not fit any more, as ascending
  /// rows. Throws Error(bug) if the protected blocks alone do not fit.
  std::vector<Position> best(std::size_t budget, const Protection& protection) const {
    return best(budget, protected_blocks(protection));
  }
  /// The same for blocks that are already marked: those with a non-zero `stays` are kept in any case.
  std::vector<Position> best(std::size_t budget, std::vector<char> stays) const;
  /// Returns how many tokens the protected blocks hold.
  std::size_t protected_tokens(const Protection& protection) const;
  /// Returns, for each block, whether it is protected.
  std::vector<char> protected_blocks(const Protection& protection) const;

 private:
  std::size_t tokens(const std::vector<char>& blocks) const;

  PromptBlocks blocks_;
  std::vector<std::uint32_t> order_;
};

}  // namespace kvsim::policy
