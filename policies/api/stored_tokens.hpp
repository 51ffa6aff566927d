#pragma once
/// A view of what a cache of one unit holds, as attention reads it.
#include <cstddef>
#include <limits>
#include <span>

#include "policies/api/cache_rows.hpp"

namespace kvsim::policy {

/// Where the keys and values of one lane lie: of positions before a split, and of those from it on.
struct LaneRows {
  MatrixView keys{}, values{};            ///< row r is position r
  MatrixView late_keys{}, late_values{};  ///< row r is position split + r
};

class StoredTokens {
 public:
  /// Tokens that are stored as they come. `positions`: in each slot. `lanes`: of the unit.
  StoredTokens(std::span<const Position> positions, std::span<const LaneRows> lanes,
               Position split = std::numeric_limits<Position>::max())
      : positions_(positions), lanes_(lanes), split_(split) {}
  /// What a codec has made of them. `rows` outlives the view.
  explicit StoredTokens(const CacheRows& rows) : positions_(rows.positions()), rows_(&rows) {}

  std::size_t slots() const { return positions_.size(); }
  /// The position in each slot.
  std::span<const Position> positions() const { return positions_; }
  std::span<const float> key(std::size_t lane, std::size_t slot) const {
    if (rows_) return rows_->keys(lane).row(slot);
    const Position at = positions_[slot];
    return at < split_ ? lanes_[lane].keys.row(static_cast<std::size_t>(at))
                       : lanes_[lane].late_keys.row(static_cast<std::size_t>(at - split_));
  }
  std::span<const float> value(std::size_t lane, std::size_t slot) const {
    if (rows_) return rows_->values(lane).row(slot);
    const Position at = positions_[slot];
    return at < split_ ? lanes_[lane].values.row(static_cast<std::size_t>(at))
                       : lanes_[lane].late_values.row(static_cast<std::size_t>(at - split_));
  }
  /// Added to the logit of the slot.
  float bias(std::size_t lane, std::size_t slot) const { return rows_ ? rows_->biases(lane)[slot] : 0; }

 private:
  std::span<const Position> positions_;
  std::span<const LaneRows> lanes_{};
  Position split_ = std::numeric_limits<Position>::max();
  const CacheRows* rows_ = nullptr;
};

}  // namespace kvsim::policy
