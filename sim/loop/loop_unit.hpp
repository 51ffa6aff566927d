#pragma once
/// One unit of a layer under one policy, with the caches of the streams that it serves.
#include <vector>

#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

struct LoopUnit {
  ReplayUnit* unit = nullptr;
  std::size_t first_lane = 0, n_lanes = 1;  ///< of the layer
  /// Text position of each prompt position of the policy; empty: the same.
  std::vector<policy::Position> text{};
  /// Per cache: how far the key of a position moves where positions are counted in the cache once
  /// (sim/loop/key_shifts.hpp); empty: not at all.
  std::vector<std::vector<std::uint32_t>> shifts{};

  std::vector<Cache>& caches() const { return unit->caches(); }
  /// `prompt`: tokens of the text's prompt.
  policy::Position text_position(policy::Position position, std::size_t prompt) const {
    if (text.empty()) return position;
    const auto at = static_cast<std::size_t>(position);
    return at < text.size() ? text[at] : static_cast<policy::Position>(prompt + at - text.size());
  }
  policy::Position policy_position(std::size_t position, std::size_t prompt) const {
    return static_cast<policy::Position>(text.empty() ? position : text.size() + position - prompt);
  }
};

}  // namespace kvsim::sim
