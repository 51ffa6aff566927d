#pragma once
/// Chooses which positions of a scored prompt a budget keeps.
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Which of two equal scores is dropped first. Positions and slots are distinct, so every order is total.
/// `slot` drops the lower slot, as an argmin over the cache does (in a prompt: the older position).
enum class Tie { oldest, newest, slot };

/// A prompt cut into blocks of `granularity` positions, ordered by the mean score of each block, best first.
/// A block with a protected token is protected.
class BlockOrder {
 public:
  BlockOrder() = default;
  /// `scores`: one per prompt position, higher is kept, no NaN.
  BlockOrder(std::span<const double> scores, std::size_t granularity, Tie tie);

  /// Returns the protected blocks and then the best others, until one does not fit any more, as ascending
  /// positions. Throws Error(bug) if the protected blocks alone do not fit.
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
  std::size_t size(std::size_t block) const;
  std::size_t tokens(const std::vector<char>& blocks) const;

  std::size_t length_ = 0, granularity_ = 1;
  std::vector<std::uint32_t> order_;
};

}  // namespace kvsim::policy
